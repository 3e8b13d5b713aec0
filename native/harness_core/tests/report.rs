//! Reports against their schema, read back, and as pages.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use harness_core::report::page::page;
use harness_core::report::{
    Change, Changed, Common, Compared, CutAt, Diff, Difference, Foreign, Inputs, Item, LAYERS,
    Layer, LayerInputs, LayerName, LayerStatus, Place, Prompt, Report, SCHEMA, Separators, Setting,
    Shown, Status, Strategy as Trimming, Tokenizer, Unit, Units, VERSION, Warning,
};
use jsonschema::Validator;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;
use std::path::Path;

fn repository(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

fn schema() -> Validator {
    let schema: Value = serde_json::from_str(&repository("docs/report.schema.json")).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

fn assert_valid(schema: &Validator, json: &str) {
    let value: Value = serde_json::from_str(json).unwrap();
    let errors: Vec<String> = schema
        .iter_errors(&value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

// Any report

fn shown() -> impl Strategy<Value = Shown> {
    prop_oneof![
        any::<String>(),
        Just("</td><script>alert(1)</script>".to_owned())
    ]
    .prop_map(Shown::from)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[a-z <&\"'\n\t\u{0}\u{1b}\u{7f}\u{9b}\u{202e}\u{200d}é]{0,40}",
        Just("</pre><script>alert(1)</script>".to_owned())
    ]
}

fn word() -> impl Strategy<Value = Shown> {
    "[a-z0-9_]{1,12}".prop_map(Shown::from)
}

fn hash() -> impl Strategy<Value = String> {
    "[0-9a-f]{64}"
}

fn name() -> impl Strategy<Value = LayerName> {
    select(LAYERS.to_vec())
}

fn status() -> impl Strategy<Value = Status> {
    use Status::{Cut, Dropped, Empty, Kept, Unused};
    select(vec![Kept, Cut, Dropped, Empty, Unused])
}

fn at() -> impl Strategy<Value = Option<CutAt>> {
    of(select(vec![CutAt::Grapheme, CutAt::Line, CutAt::Markdown]))
}

fn tokenizer() -> impl Strategy<Value = Tokenizer> {
    (shown(), any::<bool>()).prop_map(|(name, estimated)| Tokenizer { name, estimated })
}

fn separators() -> impl Strategy<Value = Separators> {
    any::<(u64, u64, i64)>().prop_map(|(count, bytes, tokens)| Separators {
        count,
        bytes,
        tokens,
    })
}

fn prompt() -> impl Strategy<Value = Prompt> {
    (
        any::<(u64, u64, Option<u64>, Option<u64>, Option<u64>)>(),
        vec(name(), 0..3),
        vec(name(), 0..3),
        hash(),
        separators(),
        of(text()),
    )
        .prop_map(|(numbers, give_way, strict, sha256, separators, text)| {
            let (bytes, tokens, budget, total_budget, bytes_per_100_tokens) = numbers;
            Prompt {
                bytes,
                tokens,
                budget,
                total_budget,
                give_way,
                strict,
                bytes_per_100_tokens,
                sha256,
                separators,
                text,
            }
        })
}

fn item() -> impl Strategy<Value = Item> {
    (
        of(shown()),
        of(any::<u64>()),
        of(1..=u64::MAX),
        status(),
        word(),
        shown(),
        (
            of(0..40_u64),
            of(any::<u64>()),
            0..40_u64,
            of(any::<u64>()),
            any::<u64>(),
        ),
        of(hash()),
    )
        .prop_map(
            |(id, index, rank, status, reason, message, numbers, sha256)| {
                let (offset, bytes_before, bytes, tokens_before, tokens) = numbers;
                Item {
                    id,
                    index,
                    rank,
                    status,
                    reason,
                    message,
                    offset,
                    bytes_before,
                    bytes,
                    tokens_before,
                    tokens,
                    sha256,
                }
            },
        )
}

fn layer(name: LayerName) -> impl Strategy<Value = Layer> {
    use LayerStatus::{Dropped, Empty, Kept, Trimmed};
    use Trimming::{DropWholeUnits, KeepOrDrop, TruncateTail};
    (
        select(vec![KeepOrDrop, DropWholeUnits, TruncateTail]),
        select(vec![Empty, Kept, Trimmed, Dropped]),
        any::<(Option<u64>, Option<u64>, Option<u64>)>(),
        at(),
        (
            any::<u64>(),
            any::<u64>(),
            any::<u64>(),
            0..60_u64,
            of(0..40_u64),
            any::<Option<u64>>(),
        ),
        of(any::<(u64, u64)>()),
        separators(),
        (hash(), hash()),
        vec(item(), 0..4),
    )
        .prop_map(
            move |(strategy, status, limits, at, numbers, units, separators, hashes, items)| {
                let (budget, limit, step) = limits;
                let (tokens_before, tokens, bytes_before, bytes, offset, cut_at) = numbers;
                let (sha256, prefix_sha256) = hashes;
                Layer {
                    name,
                    strategy,
                    status,
                    budget,
                    limit,
                    step,
                    at,
                    tokens_before,
                    tokens,
                    bytes_before,
                    bytes,
                    offset,
                    cut_at,
                    units: units.map(|(kept, given)| Units { kept, given }),
                    separators,
                    sha256,
                    prefix_sha256,
                    items,
                }
            },
        )
}

fn compared() -> impl Strategy<Value = Compared> {
    (
        shown(),
        any::<bool>(),
        vec(any::<u64>(), 0..6),
        any::<(i64, u64)>(),
    )
        .prop_map(|(name, estimated, layers, (separators, tokens))| Compared {
            name,
            estimated,
            layers,
            separators,
            tokens,
        })
}

fn warning() -> impl Strategy<Value = Warning> {
    (name(), word(), any::<(u64, u64, u64)>(), shown()).prop_map(
        |(layer, kind, (count, offset, length), message)| Warning {
            layer,
            kind,
            count,
            offset,
            length,
            message,
        },
    )
}

fn place() -> impl Strategy<Value = Option<Place>> {
    of(
        (name(), of(shown()), any::<Option<u64>>()).prop_map(|(layer, id, byte)| Place {
            layer,
            id,
            byte,
        }),
    )
}

fn change() -> impl Strategy<Value = Change> {
    use Changed::{Added, Changed as Other, Dropped, Moved, Unsent};
    (
        name(),
        of(shown()),
        select(vec![Added, Dropped, Other, Moved, Unsent]),
        (of(status()), of(status())),
        any::<(u64, u64)>(),
        shown(),
    )
        .prop_map(
            |(layer, id, change, (before, after), tokens, message)| Change {
                layer,
                id,
                change,
                before,
                after,
                tokens_before: tokens.0,
                tokens: tokens.1,
                message,
            },
        )
}

fn diff() -> impl Strategy<Value = Diff> {
    (
        any::<(bool, bool)>(),
        of(
            (any::<u64>(), place(), place()).prop_map(|(byte, before, after)| Difference {
                byte,
                before,
                after,
            }),
        ),
        any::<(u64, u64, u64, u64, u64)>(),
        vec(
            (shown(), shown(), shown()).prop_map(|(name, before, after)| Setting {
                name,
                before,
                after,
            }),
            0..3,
        ),
        vec(change(), 0..4),
    )
        .prop_map(
            |((same, estimated), first_difference, numbers, settings, changes)| {
                let (bytes, common, layers, tokens_before, tokens) = numbers;
                Diff {
                    same,
                    first_difference,
                    common: Common {
                        bytes,
                        tokens: common,
                        layers,
                    },
                    tokens_before,
                    tokens,
                    estimated,
                    settings,
                    changes,
                }
            },
        )
}

fn inputs() -> impl Strategy<Value = Inputs> {
    let unit = (shown(), text()).prop_map(|(id, text)| Unit { id, text });
    let content = prop_oneof![
        text().prop_map(|text| (Some(text), None)),
        vec(unit, 0..3).prop_map(|units| (None, Some(units)))
    ]
    .boxed();
    let layers = LAYERS.map(|name| {
        let limits = any::<(Option<u64>, Option<u64>)>();
        (limits, at(), content.clone()).prop_map(move |((budget, step), at, (text, units))| {
            LayerInputs {
                name,
                budget,
                step,
                at,
                text,
                units,
            }
        })
    });
    (
        tokenizer(),
        any::<Option<u64>>(),
        vec(name(), 0..3),
        vec(name(), 0..3),
        layers,
    )
        .prop_map(
            |(tokenizer, total_budget, give_way, strict, layers)| Inputs {
                tokenizer,
                total_budget,
                give_way,
                strict,
                layers: layers.into(),
            },
        )
}

fn report() -> impl Strategy<Value = Report> {
    (
        (shown(), of(shown()), of(shown())),
        tokenizer(),
        prompt(),
        LAYERS.map(layer),
        vec(compared(), 0..2),
        of(any::<(u64, u64)>()),
        vec(warning(), 0..3),
        of(diff()),
        of(inputs()),
    )
        .prop_map(
            |(heading, tokenizer, prompt, layers, compared, foreign, warnings, diff, inputs)| {
                let (harness, agent, workspace) = heading;
                Report {
                    schema: SCHEMA.to_owned(),
                    version: VERSION,
                    harness,
                    agent,
                    workspace,
                    tokenizer,
                    prompt,
                    layers: layers.into(),
                    compared,
                    foreign: foreign.map(|(nested, ignored)| Foreign { nested, ignored }),
                    warnings,
                    diff,
                    inputs,
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn is_valid_and_is_read_back(report in report()) {
        let json = report.to_json().unwrap();
        assert_valid(&schema(), &json);
        prop_assert_eq!(&Report::from_json(&json).unwrap(), &report);
        prop_assert!(!json.chars().any(|c| c.is_control() && c != '\n'));
    }

    // However little its offsets fit its text.
    #[test]
    fn a_page_has_two_inline_blocks_and_no_other(report in report()) {
        let page = page(&report);
        prop_assert_eq!(page.matches("<script").count(), 1);
        prop_assert_eq!(page.matches("<style").count(), 1);
        for element in ["<img", "<link", "<iframe", "<base", "<object", " src=", " href=", "http://", "https://"] {
            prop_assert!(!page.contains(element), "{}", element);
        }
        prop_assert!(!page.contains(" style="));
        prop_assert!(!page.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
        let reversed = page.contains('\u{202e}');
        prop_assert!(!reversed);
    }

    #[test]
    fn numbers_of_a_page_are_those_of_the_json(report in report()) {
        let json: Value = serde_json::to_value(&report).unwrap();
        let page = page(&report);
        for data in page.split("<data value=\"").skip(1) {
            let (value, rest) = data.split_once("\" data-of=\"").unwrap();
            let (pointer, rest) = rest.split_once("\">").unwrap();
            let found = json.pointer(pointer).unwrap_or_else(|| panic!("{pointer}"));
            prop_assert_eq!(&found.to_string(), value, "{}", pointer);
            let digits = rest.split_once("</data>").unwrap().0.replace([',', '.'], "");
            // 5 hundredths are shown as 0.05.
            prop_assert_eq!(digits.parse::<i128>().unwrap(), value.parse::<i128>().unwrap());
        }
    }
}

#[test]
fn the_golden_reports_are_valid() {
    let schema = schema();
    for name in ["shop.json", "shop_diff.json"] {
        let json = repository(&format!("test/golden/{name}"));
        assert_valid(&schema, &json);
        assert_eq!(Report::from_json(&json).unwrap().to_json().unwrap(), json);
    }
}

/// Every object inside of a value, as a JSON Pointer with the keys that it has.
fn objects(value: &Value, at: String, found: &mut Vec<(String, Vec<String>)>) {
    match value {
        Value::Object(map) => {
            found.push((at.clone(), map.keys().cloned().collect()));
            for (key, value) in map {
                objects(value, format!("{at}/{key}"), found);
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                objects(value, format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn schema_and_reader_refuse_the_same() {
    let schema = schema();
    let right: Value = serde_json::from_str(&repository("test/golden/shop_diff.json")).unwrap();
    let mut found = Vec::new();
    objects(&right, String::new(), &mut found);
    assert!(found.len() >= 40, "{}", found.len());

    let refused = |wrong: &Value, what: &str| {
        assert!(!schema.is_valid(wrong), "{what} is valid");
        assert!(
            Report::from_json(&wrong.to_string()).is_err(),
            "{what} is read"
        );
    };
    for (pointer, keys) in found {
        let change = |how: &dyn Fn(&mut serde_json::Map<String, Value>)| {
            let mut wrong = right.clone();
            how(wrong
                .pointer_mut(&pointer)
                .unwrap()
                .as_object_mut()
                .unwrap());
            wrong
        };
        let extra = change(&|map| {
            map.insert("extra".to_owned(), Value::Null);
        });
        refused(&extra, &format!("one more key of {pointer}"));
        for key in keys {
            let rubbish = change(&|map| {
                map.insert(key.clone(), Value::from(-1.5));
            });
            refused(&rubbish, &format!("{pointer}/{key} = -1.5"));
            let nullable = right
                .pointer(&format!("{pointer}/{key}"))
                .unwrap()
                .is_null();
            let without = change(&|map| {
                map.remove(&key);
            });
            // serde takes an absent option for None; the schema asks for every key.
            assert!(
                !schema.is_valid(&without),
                "{pointer} without {key} is valid"
            );
            if !nullable && Report::from_json(&without.to_string()).is_ok() {
                let mut null = right.clone();
                null.pointer_mut(&pointer).unwrap()[&key] = Value::Null;
                assert!(schema.is_valid(&null), "{pointer} without {key} is read");
            }
        }
    }
}

#[test]
fn what_is_no_report() {
    let error = |json: &str| Report::from_json(json).unwrap_err().to_string();
    assert_eq!(
        error(r#"{"schema": "engine.harness.report", "version": 2, "new": true}"#),
        "a report of version 2, and only version 1 can be read"
    );
    assert_eq!(
        error(r#"{"schema": "another", "version": 1}"#),
        r#"not a report: its schema is "another", expected "engine.harness.report""#
    );
    assert_eq!(
        error("{}"),
        "not a report: missing field `schema` at line 1 column 2"
    );
    let golden = repository("test/golden/shop.json");
    let swapped = golden.replacen(r#""name": "identity""#, r#""name": "task_state""#, 1);
    assert_eq!(
        error(&swapped),
        "not a report: expected its layers to be the five layers in the order they are sent"
    );
    let neither = golden.replacen(r#""units": []"#, r#""units": null"#, 1);
    assert_eq!(
        error(&neither),
        "not a report: expected its inputs to be the five layers in the order they are sent"
    );
    assert!(error("").starts_with("not a report: EOF"));
    assert!(error(&"[".repeat(100_000)).starts_with("not a report: "));
    assert!(error(&"{\"a\":".repeat(100_000)).starts_with("not a report: "));
}

#[test]
fn controls_are_escaped_in_json() {
    let json = Report::from_json(&repository("test/golden/shop.json")).map(|mut report| {
        report.prompt.text = Some("\u{1b}[31m \u{7f} \u{9b}31m é".to_owned());
        report.to_json().unwrap()
    });
    let json = json.unwrap();
    assert!(json.contains(r#""text": "\u001b[31m \u007f \u009b31m é""#));
    assert_eq!(
        Report::from_json(&json).unwrap().prompt.text.as_deref(),
        Some("\u{1b}[31m \u{7f} \u{9b}31m é")
    );
}
