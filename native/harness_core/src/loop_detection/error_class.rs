//! The class of an error: its text without what differs from one attempt to the next.

/// The text with each number, date and time, address, identifier of random digits and path below
/// a temporary folder written as `#`, and each run of white space as one space.
pub(super) fn class(text: &[u8]) -> Vec<u8> {
    let mut class = Vec::with_capacity(text.len());
    let mut rest = text;
    let mut in_word = false;
    while let Some((first, after)) = rest.split_first() {
        if first.is_ascii_whitespace() {
            rest = after.trim_ascii_start();
            class.push(b' ');
            in_word = false;
            continue;
        }
        // Only where a word begins: no part of one is an address or a path.
        let volatile = if in_word {
            0
        } else {
            volatile(rest, class.last())
        };
        if let Some((_, after)) = rest.split_at_checked(volatile).filter(|_| volatile > 0) {
            class.push(b'#');
            rest = after;
            in_word = true;
            continue;
        }
        if first.is_ascii_digit() {
            class.push(b'#');
            rest = skip_number(rest);
            in_word = true;
            continue;
        }
        class.push(*first);
        rest = after;
        in_word = is_word(*first) || !first.is_ascii();
    }
    class
}

/// How many bytes at the start are something that changes by itself; 0 when none is.
fn volatile(text: &[u8], before: Option<&u8>) -> usize {
    let word = length(text, is_word);
    // `./tmp/x` is a path of the workspace.
    let is_absolute = !matches!(before, Some(b'.' | b'~'));
    [
        if is_absolute { temporary_path(text) } else { 0 },
        uuid(text),
        network_address(text),
        hexadecimal(text, word),
        duration(text),
        calendar(text, word),
    ]
    .into_iter()
    .max()
    .unwrap_or(0)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn length(text: &[u8], belongs: impl Fn(u8) -> bool) -> usize {
    text.iter().take_while(|byte| belongs(**byte)).count()
}

fn skip(text: &[u8], length: usize) -> &[u8] {
    text.get(length..).unwrap_or_default()
}

/// `12`, `1,024`, `3.5`, `12:03:44`: digits, with signs between them.
fn skip_number(text: &[u8]) -> &[u8] {
    let mut rest = skip(text, length(text, |byte| byte.is_ascii_digit()));
    while let [b'.' | b',' | b':', digit, ..] = rest
        && digit.is_ascii_digit()
    {
        rest = skip(rest, 1);
        rest = skip(rest, length(rest, |byte| byte.is_ascii_digit()));
    }
    rest
}

fn temporary_path(text: &[u8]) -> usize {
    const ROOTS: [&[u8]; 6] = [
        b"/tmp/",
        b"/var/tmp/",
        b"/dev/shm/",
        b"/private/tmp/",
        b"/private/var/folders/",
        b"/var/folders/",
    ];
    let ends = |byte: u8| byte.is_ascii_whitespace() || b"\"'`:,;()[]{}<>|".contains(&byte);
    if ROOTS.iter().any(|root| text.starts_with(root)) {
        return length(text, |byte| !ends(byte));
    }
    // A drive and a colon, and somewhere below it the folder for temporary files.
    if let [drive, b':', b'\\', rest @ ..] = text
        && drive.is_ascii_alphabetic()
    {
        let path = length(rest, |byte| !ends(byte));
        let lower = rest.get(..path).unwrap_or_default().to_ascii_lowercase();
        if [b"temp\\".as_slice(), b"tmp\\"].iter().any(|folder| {
            lower.starts_with(folder)
                || lower
                    .windows(folder.len().saturating_add(1))
                    .any(|part| part.strip_prefix(b"\\") == Some(folder))
        }) {
            return path.saturating_add(3);
        }
    }
    0
}

/// 8-4-4-4-12 hexadecimal digits.
fn uuid(text: &[u8]) -> usize {
    let mut rest = text;
    for (index, digits) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            match rest.strip_prefix(b"-") {
                Some(after) => rest = after,
                None => return 0,
            }
        }
        if length(rest, |byte| byte.is_ascii_hexdigit()) != digits {
            return 0;
        }
        rest = skip(rest, digits);
    }
    text.len().saturating_sub(rest.len())
}

/// IPv6 and MAC addresses; those of IPv4 are numbers anyway.
fn network_address(text: &[u8]) -> usize {
    let length = length(text, |byte| byte.is_ascii_hexdigit() || byte == b':');
    let address = text.get(..length).unwrap_or_default();
    let colons = address.iter().filter(|byte| **byte == b':').count();
    let shortened = address.windows(2).any(|pair| pair == b"::");
    let has_digit = address.iter().any(u8::is_ascii_digit);
    if has_digit && (colons == 5 || colons == 7 || (shortened && colons >= 2)) {
        length
    } else {
        0
    }
}

/// `0x7ffd…`, and eight or more hexadecimal digits of which one is a decimal: hashes, identifiers.
fn hexadecimal(text: &[u8], word: usize) -> usize {
    let text = text.get(..word).unwrap_or_default();
    let digits = text
        .strip_prefix(b"0x")
        .or_else(|| text.strip_prefix(b"0X"));
    let is_address =
        digits.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit));
    let is_identifier =
        word >= 8 && text.iter().all(u8::is_ascii_hexdigit) && text.iter().any(u8::is_ascii_digit);
    if is_address || is_identifier { word } else { 0 }
}

/// A number and a unit of time, which changes with the number: `950ms`, `1.2 s`.
fn duration(text: &[u8]) -> usize {
    const UNITS: [&[u8]; 14] = [
        b"ns",
        "µs".as_bytes(),
        "μs".as_bytes(),
        b"us",
        b"ms",
        b"s",
        b"sec",
        b"secs",
        b"second",
        b"seconds",
        b"m",
        b"min",
        b"h",
        b"minutes",
    ];
    if !text.first().is_some_and(u8::is_ascii_digit) {
        return 0;
    }
    let after = skip_number(text);
    let unit = after.strip_prefix(b" ").unwrap_or(after);
    let letters = length(unit, |byte| is_word(byte) || !byte.is_ascii());
    let is_unit = unit
        .get(..letters)
        .is_some_and(|unit| UNITS.contains(&unit));
    if is_unit {
        text.len()
            .saturating_sub(unit.len())
            .saturating_add(letters)
    } else {
        0
    }
}

/// Names of days and months, as dates are written with.
fn calendar(text: &[u8], word: usize) -> usize {
    const NAMES: [&[u8]; 37] = [
        b"Mon",
        b"Tue",
        b"Wed",
        b"Thu",
        b"Fri",
        b"Sat",
        b"Sun",
        b"Monday",
        b"Tuesday",
        b"Wednesday",
        b"Thursday",
        b"Friday",
        b"Saturday",
        b"Sunday",
        b"Jan",
        b"Feb",
        b"Mar",
        b"Apr",
        b"May",
        b"Jun",
        b"Jul",
        b"Aug",
        b"Sep",
        b"Oct",
        b"Nov",
        b"Dec",
        b"January",
        b"February",
        b"March",
        b"April",
        b"June",
        b"July",
        b"August",
        b"September",
        b"October",
        b"November",
        b"December",
    ];
    let is_name = text.get(..word).is_some_and(|name| NAMES.contains(&name));
    if is_name { word } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str) -> String {
        String::from_utf8(class(text.as_bytes())).unwrap()
    }

    #[test]
    fn what_changes_by_itself_is_taken_out() {
        for (text, expected) in [
            ("main.c:12:5: error", "main.c:#: error"),
            ("line 7 of 1,024", "line # of #"),
            ("2024-01-02T03:04:05.678Z failed", "#-#-#T#Z failed"),
            ("Mon Dec  1 05:03:11 2025", "# # # # #"),
            ("died at 0x7ffdeadbeef", "died at #"),
            ("pid=4711 killed", "pid=# killed"),
            ("commit 1f3870be274f6c49 is gone", "commit # is gone"),
            ("id 550e8400-e29b-41d4-a716-446655440000.", "id #."),
            ("host fe80::1ff:fe23 and 10.0.0.1:8080", "host # and #"),
            ("mac 52:54:00:12:34:56", "mac #"),
            ("open /tmp/pytest-of-me/x1/a.py: no", "open #: no"),
            ("open '/var/tmp/ab/c'", "open '#'"),
            (
                r"at C:\Users\me\AppData\Local\Temp\x.py, line 3",
                "at #, line #",
            ),
            ("took 950ms", "took #"),
            ("took 1.2 s.", "took #."),
            ("a\n\n  b\t c", "a b c"),
            ("utf8 and x86_64", "utf# and x#_#"),
            ("", ""),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn what_tells_errors_apart_stays() {
        for text in [
            "no such file: src/main.rs",
            "std::abc::decade not found",
            "decade facade",
            "Marching on Sunrise",
            r"C:\work\template\x",
            "/tmpfoo/bar ./tmp/x",
            "größer",
        ] {
            assert_eq!(shown(text), text);
        }
    }

    proptest! {
        #[test]
        fn numbers_never_matter(words in prop::collection::vec("[a-z]{1,6}", 1..6), a: u32, b: u32) {
            let text = |number: u32| words.join(&format!(" {number} "));
            prop_assert_eq!(shown(&text(a)), shown(&text(b)));
        }

        #[test]
        fn nothing_makes_it_crash_or_grow(text in any::<Vec<u8>>()) {
            prop_assert!(class(&text).len() <= text.len());
        }
    }
}
