//! The arguments of a call, whichever way they are written: a digest that does not depend on
//! white space, on the order of keys, or on how a number is spelt.
//!
//! Each container is digested when it ends, from the digests of what is in it; so a text is read
//! in one pass without recursion, and nesting of any depth costs neither stack nor time. Numbers
//! are compared as decimals of any length: `serde_json` would make floats of large ones, and with
//! its `arbitrary_precision` take an object with a certain key for a number.

use super::digest::{Digest, Hasher, digest};
use std::borrow::Cow;

/// Numbers beyond this many are part of the shape, so that memory has a bound.
const NUMBERS: usize = 64;
/// 2^53: between integers below it distances are exact.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// Longer strings are digested at once.
const SHORT: usize = 64;

/// Arguments, digested.
#[derive(Debug, PartialEq)]
pub(super) struct Arguments {
    pub(super) identity: Digest,
    /// With each number left out that is below 2^53 in magnitude.
    pub(super) shape: Digest,
    /// The numbers left out, in the canonical order.
    pub(super) numbers: Vec<f64>,
}

impl Arguments {
    /// Reads JSON text, `None` when it is malformed. With `key` only those members of the object
    /// count.
    pub(super) fn read(text: &[u8], key: &[&str]) -> Option<Self> {
        let part = read(text, key)?;
        Some(Arguments {
            identity: digest([part.identity.as_slice()]),
            shape: digest([part.shape()]),
            numbers: part.numbers,
        })
    }
}

/// A value that has been read: a tag and either its bytes or their digest.
struct Part {
    identity: Vec<u8>,
    /// `None` where it is the same as the identity.
    shape: Option<Vec<u8>>,
    numbers: Vec<f64>,
}

impl Part {
    fn new(tag: u8, bytes: &[u8]) -> Self {
        let mut identity = Vec::with_capacity(bytes.len().saturating_add(1));
        identity.push(tag);
        identity.extend_from_slice(bytes);
        Part {
            identity,
            shape: None,
            numbers: Vec::new(),
        }
    }

    fn string(text: &str) -> Self {
        if text.len() <= SHORT {
            Part::new(b's', text.as_bytes())
        } else {
            Part::new(b'S', &digest([text.as_bytes()]))
        }
    }

    fn number(number: &Number) -> Self {
        let part = Part::new(b'n', number.canonical.as_bytes());
        match number.near {
            Some(near) => Part {
                shape: Some(b"N".to_vec()),
                numbers: vec![near],
                ..part
            },
            None => part,
        }
    }

    fn shape(&self) -> &[u8] {
        self.shape.as_deref().unwrap_or(&self.identity)
    }
}

/// A container that has begun.
enum Open<'a> {
    Array(Digesting),
    Object {
        members: Vec<(Cow<'a, str>, Part)>,
        key: Cow<'a, str>,
    },
}

#[derive(Default)]
struct Digesting {
    identity: Hasher,
    shape: Hasher,
    numbers: Vec<f64>,
}

impl Digesting {
    fn part(&mut self, part: &Part) {
        self.identity.part(&part.identity);
        let room = NUMBERS.saturating_sub(self.numbers.len());
        if part.numbers.len() <= room {
            self.shape.part(part.shape());
            self.numbers.extend_from_slice(&part.numbers);
        } else {
            self.shape.part(&part.identity);
        }
    }

    fn name(&mut self, name: &str) {
        self.identity.part(name.as_bytes());
        self.shape.part(name.as_bytes());
    }

    fn end(self, tag: u8) -> Part {
        Part {
            shape: Some(Part::new(tag, &self.shape.finish()).identity),
            numbers: self.numbers,
            ..Part::new(tag, &self.identity.finish())
        }
    }
}

fn end_object(mut members: Vec<(Cow<str>, Part)>, key: &[&str]) -> Part {
    if !key.is_empty() {
        members.retain(|(name, _)| key.contains(&name.as_ref()));
    }
    // A name may stand twice: all its values count, in an order of their own.
    members.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.identity.cmp(&b.1.identity)));
    let mut digesting = Digesting::default();
    for (name, part) in &members {
        digesting.name(name);
        digesting.part(part);
    }
    digesting.end(b'o')
}

fn read(text: &[u8], key: &[&str]) -> Option<Part> {
    let mut reader = Reader { rest: text };
    let mut open: Vec<Open> = Vec::new();
    loop {
        let mut part = match reader.next_of_value()? {
            b'{' if reader.eat(b'}') => end_object(Vec::new(), &[]),
            b'{' => {
                let key = reader.name()?;
                open.push(Open::Object {
                    members: Vec::new(),
                    key,
                });
                continue;
            }
            b'[' if reader.eat(b']') => Digesting::default().end(b'a'),
            b'[' => {
                open.push(Open::Array(Digesting::default()));
                continue;
            }
            b'"' => Part::string(&reader.string()?),
            b't' => reader.word(b"true")?,
            b'f' => reader.word(b"false")?,
            b'n' => reader.word(b"null")?,
            _ => Part::number(&reader.number()?),
        };
        // The value is complete: it goes into what is open, which may end with it.
        loop {
            match open.pop() {
                None => return reader.is_at_end().then_some(part),
                Some(Open::Array(mut array)) => {
                    array.part(&part);
                    if reader.eat(b']') {
                        part = array.end(b'a');
                        continue;
                    }
                    open.push(Open::Array(array));
                }
                Some(Open::Object {
                    mut members,
                    key: name,
                }) => {
                    members.push((name, part));
                    if reader.eat(b'}') {
                        let key = if open.is_empty() { key } else { &[] };
                        part = end_object(members, key);
                        continue;
                    }
                    reader.eat(b',').then_some(())?;
                    let key = reader.name()?;
                    open.push(Open::Object { members, key });
                    break;
                }
            }
            reader.eat(b',').then_some(())?;
            break;
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn skip_space(&mut self) {
        while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.skip_space();
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.rest.is_empty()
    }

    /// The first byte of a value. A bracket is eaten; what else it is stays.
    fn next_of_value(&mut self) -> Option<u8> {
        self.skip_space();
        let (first, rest) = self.rest.split_first()?;
        if matches!(first, b'{' | b'[') {
            self.rest = rest;
        }
        Some(*first)
    }

    /// A member's name and the colon.
    fn name(&mut self) -> Option<Cow<'a, str>> {
        self.skip_space();
        let name = self.string()?;
        self.eat(b':').then_some(name)
    }

    fn string(&mut self) -> Option<Cow<'a, str>> {
        let mut escaped = false;
        let mut escapes = false;
        let inside = self.rest.strip_prefix(b"\"")?;
        let length = inside.iter().position(|byte| {
            let ends = *byte == b'"' && !escaped;
            escaped = *byte == b'\\' && !escaped;
            escapes |= escaped;
            ends
        })?;
        let (quoted, rest) = self.rest.split_at_checked(length.checked_add(2)?)?;
        self.rest = rest;
        if escapes {
            serde_json::from_slice(quoted).ok().map(Cow::Owned)
        } else {
            serde_json::from_slice(quoted).ok().map(Cow::Borrowed)
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<Part> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(Part::new(b'w', word))
    }

    fn digits(&mut self) -> &'a [u8] {
        let length = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at_checked(length).unwrap_or_default();
        self.rest = rest;
        digits
    }

    fn eat_here(&mut self, bytes: &[u8]) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        if bytes.contains(first) {
            self.rest = rest;
            return Some(*first);
        }
        None
    }

    fn number(&mut self) -> Option<Number> {
        let start = self.rest;
        let negative = self.eat_here(b"-").is_some();
        let whole = self.digits();
        if whole.is_empty() || (whole.len() > 1 && whole.starts_with(b"0")) {
            return None;
        }
        let fraction = match self.eat_here(b".") {
            Some(_) => Some(self.digits()).filter(|digits| !digits.is_empty())?,
            None => b"",
        };
        let exponent = match self.eat_here(b"eE") {
            Some(_) => {
                let negative = self.eat_here(b"+-") == Some(b'-');
                let digits = Some(self.digits()).filter(|digits| !digits.is_empty())?;
                Exponent { negative, digits }
            }
            None => Exponent {
                negative: false,
                digits: b"0",
            },
        };
        let length = start.len().saturating_sub(self.rest.len());
        let text = str::from_utf8(start.get(..length)?).ok()?;
        Some(Number::new(text, negative, whole, fraction, exponent))
    }
}

struct Exponent<'a> {
    negative: bool,
    digits: &'a [u8],
}

struct Number {
    /// Digits without zeros around them, and a power of ten.
    canonical: String,
    /// The number itself, where distances from it are exact.
    near: Option<f64>,
}

impl Number {
    fn new(
        text: &str,
        negative: bool,
        whole: &[u8],
        fraction: &[u8],
        exponent: Exponent,
    ) -> Number {
        let near = text.parse().ok().filter(|near: &f64| near.abs() < EXACT);
        let digits: String = whole
            .iter()
            .chain(fraction)
            .map(|digit| char::from(*digit))
            .collect();
        let digits = digits.trim_start_matches('0');
        let significant = digits.trim_end_matches('0');
        let sign = if negative { "-" } else { "" };
        let zeros = digits.len().saturating_sub(significant.len());
        let canonical = match exponent.value(fraction.len(), zeros) {
            _ if significant.is_empty() => "0".to_owned(),
            Some(exponent) => format!("{sign}{significant}e{exponent}"),
            // A power of ten that is itself beyond all numbers: told apart by its spelling.
            None => text.to_owned(),
        };
        Number { canonical, near }
    }
}

impl Exponent<'_> {
    fn value(&self, fraction: usize, zeros: usize) -> Option<i64> {
        let value: i64 = str::from_utf8(self.digits).ok()?.parse().ok()?;
        let value = if self.negative {
            value.checked_neg()?
        } else {
            value
        };
        value
            .checked_sub(i64::try_from(fraction).ok()?)?
            .checked_add(i64::try_from(zeros).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn identity(text: &str) -> Option<Digest> {
        Some(Arguments::read(text.as_bytes(), &[])?.identity)
    }

    fn same(texts: &[&str]) {
        for text in texts {
            assert!(identity(text).is_some(), "{text}");
            assert_eq!(identity(text), identity(texts[0]), "{text}");
        }
    }

    fn different(texts: &[&str]) {
        for (index, a) in texts.iter().enumerate() {
            assert!(identity(a).is_some(), "{a}");
            for b in &texts[index + 1..] {
                assert_ne!(identity(a), identity(b), "{a} {b}");
            }
        }
    }

    #[test]
    fn l11_order_and_white_space_do_not_matter() {
        same(&[
            r#"{"city":"P","unit":"c"}"#,
            r#"{"unit":"c","city":"P"}"#,
            " { \"unit\" :\t\"c\" ,\r\n \"city\" : \"P\" } ",
            r#"{"\u0063ity":"\u0050","unit":"c"}"#,
        ]);
        same(&["[]", " [ ] "]);
        same(&["{}", "{ }"]);
    }

    #[test]
    fn numbers_are_equal_by_value() {
        same(&[
            "1", "1.0", "1e0", "1E+0", "10e-1", "0.1e1", "100e-2", "1.000",
        ]);
        same(&["0", "-0", "0.0", "0e5", "-0.00e-99999999999999999999"]);
        same(&["1200", "1.2e3", "12e2"]);
        same(&["-0.5", "-5e-1", "-0.50"]);
        same(&[
            "9007199254740993",
            "9007199254740993.0",
            "9.007199254740993e15",
        ]);
    }

    #[test]
    fn l12_other_values_stay_apart() {
        different(&[
            "[1,2]", "[2,1]", "[[1],2]", "[1,[2]]", "[1,2,[]]", "[1,2,{}]",
        ]);
        different(&[
            "1",
            "\"1\"",
            "-1",
            "10",
            "0.1",
            "true",
            "null",
            "[1]",
            "{\"1\":1}",
        ]);
        different(&["9007199254740992", "9007199254740993"]);
        different(&[
            "123456789012345678901234567890",
            "123456789012345678901234567891",
        ]);
        different(&[
            "1e400",
            "1e401",
            "1e99999999999999999999",
            "1e99999999999999999998",
        ]);
        different(&[r#"{"a":1,"a":2}"#, r#"{"a":2}"#, r#"{"a":1}"#]);
        different(&[r#"{"a":"b","c":1}"#, r#"{"a":1,"c":"b"}"#]);
        // What serde_json takes for a number when it keeps all digits.
        different(&["1", r#"{"$serde_json::private::Number":"1"}"#]);
        let long = "x".repeat(100);
        different(&[
            &format!("\"{long}\""),
            &format!("\"{long}y\""),
            &format!("[\"{long}\"]"),
        ]);
    }

    #[test]
    fn malformed_texts() {
        for text in [
            "",
            " ",
            "{",
            "[",
            "}",
            "]",
            "{]",
            "[}",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{'a':1}",
            "{\"a\":1}}",
            "1 2",
            "01",
            "+1",
            "1.",
            ".5",
            "1e",
            "1e+",
            "-",
            "NaN",
            "Infinity",
            "nul",
            "truee",
            "\"",
            "\"\\\"",
            "\"\\x\"",
            "\"\n\"",
            "\"\\ud800\"",
            "[\"a\":1]",
            "{\"a\":1 \"b\":2}",
            "{1:2}",
            "\u{feff}1",
        ] {
            assert_eq!(identity(text), None, "{text:?}");
        }
        assert_eq!(Arguments::read(b"\"\xff\"", &[]), None);
        assert_eq!(Arguments::read(b"\xff", &[]), None);
    }

    #[test]
    fn a_key_leaves_the_rest_out() {
        let key = |text: &str| Arguments::read(text.as_bytes(), &["path", "line"]).unwrap();
        assert_eq!(
            key(r#"{"path":"a","why":"x","line":1}"#),
            key(r#"{"line":1.0,"path":"a","why":{"path":"b"}}"#)
        );
        assert_ne!(key(r#"{"path":"a"}"#), key(r#"{"path":"b"}"#));
        // Only the outermost object has it.
        assert_ne!(key(r#"{"path":{"x":1}}"#), key(r#"{"path":{"x":2,"y":1}}"#));
        assert_eq!(key("[1]"), Arguments::read(b"[1]", &[]).unwrap());
    }

    #[test]
    fn numbers_are_left_out_of_the_shape() {
        let read = |text: &str| Arguments::read(text.as_bytes(), &[]).unwrap();
        let a = read(r#"{"z":[3,{"y":2}],"a":1,"t":"x"}"#);
        assert_eq!(a.numbers, [1.0, 3.0, 2.0]);
        let b = read(r#"{"a":5,"t":"x","z":[-6,{"y":7.5}]}"#);
        assert_eq!(b.numbers, [5.0, -6.0, 7.5]);
        assert_eq!(a.shape, b.shape);
        assert_ne!(a.identity, b.identity);
        assert_ne!(a.shape, read(r#"{"z":[3,{"y":2}],"a":1,"t":"y"}"#).shape);
        assert_ne!(a.shape, read(r#"{"z":[3,{"y":2}],"a":"1","t":"x"}"#).shape);
        // From 2^53 on distances are not exact.
        let large = read("[9007199254740993,1]");
        assert_eq!(large.numbers, [1.0]);
        assert_ne!(large.shape, read("[9007199254740995,1]").shape);
    }

    #[test]
    fn memory_for_numbers_has_a_bound() {
        let text = format!("[{}1]", "1,".repeat(100_000));
        let read = Arguments::read(text.as_bytes(), &[]).unwrap();
        assert_eq!(read.numbers.len(), NUMBERS);
    }

    #[test]
    fn depth_costs_no_stack_and_no_time() {
        let deep = |depth: usize, inside: &str| {
            format!("{}{inside}{}", "[{\"a\":".repeat(depth), "}]".repeat(depth))
        };
        different(&[
            &deep(100_000, "1"),
            &deep(100_000, "2"),
            &deep(99_999, "1"),
            "1",
        ]);
        assert_eq!(identity(&"[".repeat(1_000_000)), None);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-1.0e9..1.0e9).prop_map(Value::from),
            "[a\u{0}\u{e9}\"\\\\]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ab\"]{0,2}", inner, 0..4).prop_map(|map| json!(map)),
            ]
        })
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json_on_what_is_json(text in "[\\[\\]{},:\"\\\\0-9.eE+\\-a-z \u{e9}]{0,12}") {
            prop_assert_eq!(
                identity(&text).is_some(),
                serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok()
            );
        }

        #[test]
        fn however_it_is_written_it_is_the_same(value in values()) {
            let compact = value.to_string();
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            prop_assert!(identity(&compact).is_some());
            prop_assert_eq!(identity(&compact), identity(&pretty));
        }

        #[test]
        fn other_values_have_other_digests(a in values(), b in values()) {
            prop_assert_eq!(
                a == b,
                identity(&a.to_string()) == identity(&b.to_string())
            );
        }

        #[test]
        fn nothing_makes_it_crash(text in any::<Vec<u8>>()) {
            let _ = Arguments::read(&text, &["a"]);
        }
    }
}
