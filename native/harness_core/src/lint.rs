//! What a prompt had better not hold: values that change every time, which cost the provider's
//! cache all that follows them, and opaque blobs, for which an estimate by bytes is far off.
//!
//! It is found by its form, so a warning is a hint: an example in a document looks like the real
//! thing.

use std::sync::LazyLock;

use regex::bytes::Regex;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A time of day with seconds, a date with a time, or a named Unix time.
    ClockTime,
    /// A UUID (RFC 9562).
    Uuid,
    /// A named id of a session, request, trace, conversation or run.
    SessionId,
    /// Over [`LONGEST`] characters of base64 or hex, in one line or wrapped.
    OpaqueBlob,
}

/// All that was found of one kind in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The kind.
    pub kind: Kind,
    /// How many there are.
    pub count: usize,
    /// The byte offset of the first.
    pub offset: usize,
    /// Its bytes.
    pub len: usize,
}

/// Characters of base64 that are no blob yet.
pub const LONGEST: usize = 512;

// One group for each kind. What stands around a match is looked at by itself (`stands_alone`).
static VALUES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let session = r#"(?i:(?:session|request|trace|correlation|conversation|run)[ _-]?id)["'`]?\s{0,3}[:=]\s{0,3}["'`]?[A-Za-z0-9_-]{6,}|(?:sess|session|req|conv|run)_[A-Za-z0-9]{8,}"#;
    let uuid = "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}";
    let time = r#"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2})?|(?:[01]?[0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]|(?i:timestamp|epoch|unix[ _]?time|now|ts)["'`]?\s{0,3}[:=]\s{0,3}["'`]?[0-9]{10}(?:[0-9]{3})?"#;
    Regex::new(&format!("(?-u)({session})|({uuid})|({time})")).ok()
});

// Wrapped lines may be quoted or indented.
static BLOBS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let line = "[A-Za-z0-9+/_-]{40,}={0,2}";
    Regex::new(&format!(r"(?-u)(?:{line}\r?\n[> \t]{{0,8}})*{line}")).ok()
});

/// What there is of each kind in a text, in the order of [`Kind`].
///
/// ```
/// use harness_core::lint::{Kind, Warning, warnings};
///
/// let text = b"It is 04:55:14, then 04:55:15.";
/// let expected = Warning { kind: Kind::ClockTime, count: 2, offset: 6, len: 8 };
/// assert_eq!(warnings(text), [expected]);
/// ```
pub fn warnings(text: &[u8]) -> Vec<Warning> {
    let mut warnings: Vec<Warning> = Vec::new();
    let mut add = |kind: Kind, offset: usize, len: usize| match warnings
        .iter_mut()
        .find(|warning| warning.kind == kind)
    {
        Some(warning) => warning.count = warning.count.saturating_add(1),
        None => warnings.push(Warning {
            kind,
            count: 1,
            offset,
            len,
        }),
    };
    let values = VALUES.iter().flat_map(|regex| regex.captures_iter(text));
    for captures in values {
        let kinds = [Kind::SessionId, Kind::Uuid, Kind::ClockTime];
        let groups = kinds.iter().zip(captures.iter().skip(1));
        for (kind, found) in groups.filter_map(|(kind, found)| Some((kind, found?))) {
            let is_id = *kind != Kind::SessionId || is_id(found.as_bytes());
            if is_id && stands_alone(text, found.start(), found.end()) {
                add(*kind, found.start(), found.len());
            }
        }
    }
    for found in BLOBS.iter().flat_map(|regex| regex.find_iter(text)) {
        if is_opaque(found.as_bytes()) {
            add(Kind::OpaqueBlob, found.start(), found.len());
        }
    }
    warnings.sort_by_key(|warning| warning.kind);
    warnings
}

/// Whether it is no part of something longer, such as a hardware address.
fn stands_alone(text: &[u8], start: usize, end: usize) -> bool {
    let is_part = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_'))
    };
    let before = start.checked_sub(1).and_then(|before| text.get(before));
    // A time may be followed by its zone, a fraction, or a colon that ends a phrase.
    let after = match text.get(end) {
        Some(b'Z') => None,
        Some(b':') => text.get(end.saturating_add(1)),
        after => after,
    };
    !is_part(before) && !is_part(after)
}

/// Whether a named value is an id and not a word: some digit is in it.
fn is_id(found: &[u8]) -> bool {
    found.iter().any(u8::is_ascii_digit)
}

/// Whether it is long enough, and a mixture: a line of dashes or a long name is none.
fn is_opaque(found: &[u8]) -> bool {
    let mut characters: usize = 0;
    let (mut digits, mut letters) = (false, false);
    for byte in found {
        digits |= byte.is_ascii_digit();
        letters |= byte.is_ascii_alphabetic();
        let counts = byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'_' | b'-');
        characters = characters.saturating_add(usize::from(counts));
    }
    digits && letters && characters > LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(text: &str) -> Vec<(Kind, &str)> {
        warnings(text.as_bytes())
            .iter()
            .map(|warning| {
                let end = warning.offset + warning.len;
                (warning.kind, &text[warning.offset..end])
            })
            .collect()
    }

    #[test]
    fn the_patterns_are_patterns() {
        assert!(VALUES.is_some() && BLOBS.is_some());
    }

    #[test]
    fn clock_times() {
        for (text, time) in [
            ("It is 04:55:14.", "04:55:14"),
            ("at 9:05:07 AM", "9:05:07"),
            ("built 2026-12-01T04:55:14Z", "2026-12-01T04:55:14"),
            ("built 2026-12-01 04:55 UTC", "2026-12-01 04:55"),
            ("Tue, 01 Dec 2026 04:55:14 GMT", "04:55:14"),
            ("04:55:14.123", "04:55:14"),
            ("since 04:55:14: nothing", "04:55:14"),
            ("\"timestamp\": 1796100914", "timestamp\": 1796100914"),
            ("now=1796100914123", "now=1796100914123"),
        ] {
            assert_eq!(found(text), [(Kind::ClockTime, time)], "{text}");
        }
        for text in [
            "open from 09:00 to 17:30",
            "due on 2026-12-01",
            "call 1796100914",
            "00:1b:44:11:3a:b7",
            "10:20:30:40:50:60",
            "ratio 1:2:3",
            "99:99:99",
            "v12:34:56",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn uuids_and_session_ids() {
        let uuid = "0190163d-8694-739b-aea5-966c26f8ad91";
        assert_eq!(found(&format!("project {uuid}.")), [(Kind::Uuid, uuid)]);
        assert_eq!(found(&format!("{uuid}0")), []);
        for (text, id) in [
            ("Session ID: a1b2c3d4", "Session ID: a1b2c3d4"),
            ("session_id=\"88f0-1\"", "session_id=\"88f0-1"),
            ("request-id: req9912345", "request-id: req9912345"),
            ("in sess_9fK2mmZ81q", "sess_9fK2mmZ81q"),
        ] {
            assert_eq!(found(text), [(Kind::SessionId, id)], "{text}");
        }
        for text in [
            "session id: required",
            "the session id is checked",
            "runid",
            "req_something",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn blobs() {
        let base64 = "iVBORw0KGgo".repeat(47);
        assert_eq!(found(&base64[..512]), []);
        assert_eq!(found(&base64[..513]), [(Kind::OpaqueBlob, &base64[..513])]);
        let data = format!("![](data:image/png;base64,{base64}==)");
        assert_eq!(found(&data), [(Kind::OpaqueBlob, &data[26..26 + 519])]);

        // Nine lines of 64 characters, as PEM wraps them, and quoted.
        for line_break in ["\n", "\r\n", "\n> "] {
            let line = format!("{}{line_break}", &base64[..64]);
            let end = 9 * line.len() - line_break.len();
            let pem = line.repeat(9);
            assert_eq!(found(&pem), [(Kind::OpaqueBlob, &pem[..end])]);
            assert_eq!(
                found(&line.repeat(8)[..8 * line.len() - line_break.len()]),
                []
            );
        }

        for text in [
            "-".repeat(600),
            "a".repeat(600),
            "word ".repeat(200),
            "1".repeat(600),
        ] {
            assert_eq!(found(&text), []);
        }
    }

    #[test]
    fn all_of_a_kind_are_one_warning() {
        let text = "04:55:14 sess_9fK2mmZ81q 04:55:15 04:55:16";
        let expected = [
            Warning {
                kind: Kind::ClockTime,
                count: 3,
                offset: 0,
                len: 8,
            },
            Warning {
                kind: Kind::SessionId,
                count: 1,
                offset: 9,
                len: 15,
            },
        ];
        assert_eq!(warnings(text.as_bytes()), expected);
    }

    proptest! {
        #[test]
        fn offsets_lie_in_the_text(text in r"[ab0-9:TZ \-\n+/=]{0,200}", bytes in any::<Vec<u8>>()) {
            for text in [text.as_bytes(), &bytes] {
                for warning in warnings(text) {
                    prop_assert!(warning.count > 0 && warning.len > 0);
                    prop_assert!(warning.offset + warning.len <= text.len());
                }
            }
        }
    }
}
