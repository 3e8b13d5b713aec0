//! A report as one HTML file: no network, no script needed to read it, light and dark.
//!
//! What comes from a prompt or a repository is text to maud, which escapes it; invisible
//! characters are shown as `\u{hex}`. Should anything get by all that, the content security policy
//! allows the two inline blocks below by their hashes, and nothing else.
//!
//! Every number stands in a `<data>` element that names its place in the JSON by a JSON Pointer
//! (RFC 6901).

use super::{Diff, Item, Layer, LayerName, Place, Report, Shown, Status};
use crate::escape::is_invisible;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page.
#[must_use]
pub fn page(report: &Report) -> String {
    let title = match &report.agent {
        Some(agent) => format!("Prompt of {agent}"),
        None => "Prompt".to_owned(),
    };
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; base-uri 'none'; form-action 'none'",
        source_hash(STYLE),
        source_hash(SCRIPT)
    );
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { bdi { (title) } }
                    (heading(report))
                }
                main {
                    section { h2 { "Context" } (context(report)) (layers(report)) (foreign(report)) }
                    @if !report.warnings.is_empty() { section { h2 { "Warnings" } (warnings(report)) } }
                    @if let Some(diff) = &report.diff { section { h2 { "What changed" } (changed(diff)) } }
                    section { h2 { "Everything considered" } (considered(report)) }
                    @if let Some(text) = &report.prompt.text {
                        section #prompt { h2 { "The prompt" } (search()) (prompt(report, text)) }
                    }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

/// The source of an inline block as a content security policy names it.
fn source_hash(block: &str) -> String {
    format!("sha256-{}", base64(&Sha256::digest(block)))
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or_default());
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for place in 0..4_usize {
            let shift = [18, 12, 6, 0].get(place).copied().unwrap_or_default();
            let digit = usize::try_from((bits >> shift) & 63).unwrap_or_default();
            match ALPHABET.get(digit) {
                Some(digit) if place <= chunk.len() => text.push(char::from(*digit)),
                _ => text.push('='),
            }
        }
    }
    text
}

/// A value's word in the JSON.
fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

// Numbers

fn number(pointer: &str, value: impl Into<i128>) -> Markup {
    let value = value.into();
    html! { data value=(value) data-of=(pointer) { (grouped(value)) } }
}

/// Tokens, with `~` where they are estimated.
fn tokens(report: &Report, pointer: &str, value: impl Into<i128>) -> Markup {
    counted(report.tokenizer.estimated, pointer, value)
}

fn counted(estimated: bool, pointer: &str, value: impl Into<i128>) -> Markup {
    html! { @if estimated { "~" } (number(pointer, value)) }
}

fn limit(pointer: &str, value: Option<u64>) -> Markup {
    match value {
        Some(value) => number(pointer, value),
        None => html! { "∞" },
    }
}

fn hundredths(pointer: &str, value: u64) -> Markup {
    html! {
        data value=(value) data-of=(pointer) { (grouped((value / 100).into())) "." (format!("{:02}", value % 100)) }
    }
}

/// With a comma between thousands.
fn grouped(value: i128) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::from(if value < 0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digits.len().saturating_sub(index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

// The head

fn heading(report: &Report) -> Markup {
    html! {
        dl {
            @if let Some(workspace) = &report.workspace { dt { "workspace" } dd { (name(workspace)) } }
            dt { "tokenizer" }
            dd {
                (name(&report.tokenizer.name))
                @if report.tokenizer.estimated { " (an estimate, marked by ~" } @else { " (exact" }
                @if let Some(ratio) = report.prompt.bytes_per_100_tokens {
                    ", " (hundredths("/prompt/bytes_per_100_tokens", ratio)) " bytes per token"
                }
                ")"
            }
            dt { "prompt" }
            dd {
                (tokens(report, "/prompt/tokens", report.prompt.tokens)) " of "
                (limit("/prompt/budget", report.prompt.budget)) " tokens, "
                (number("/prompt/bytes", report.prompt.bytes)) " bytes"
                @if report.prompt.total_budget.is_some() {
                    ", total budget " (limit("/prompt/total_budget", report.prompt.total_budget))
                }
                @if !report.prompt.strict.is_empty() {
                    ", strict: " (report.prompt.strict.iter().map(word).collect::<Vec<_>>().join(", "))
                }
            }
            dt { "sha256" } dd { code { (report.prompt.sha256) } }
        }
    }
}

fn name(text: &Shown) -> Markup {
    html! { bdi { (text.as_str()) } }
}

// The whole by layer

fn context(report: &Report) -> Markup {
    let parts: Vec<(LayerName, u64)> = report
        .layers
        .iter()
        .map(|layer| (layer.name, layer.tokens))
        .collect();
    html! {
        (bar(&parts, 0))
        ul.legend {
            @for (index, layer) in report.layers.iter().enumerate() {
                li {
                    span.swatch.(word(layer.name)) {}
                    (word(layer.name)) " "
                    (tokens(report, &format!("/layers/{index}/tokens"), layer.tokens))
                }
            }
        }
    }
}

/// One segment for each part, as wide as its tokens, out of at least `whole`.
fn bar(parts: &[(LayerName, u64)], whole: u64) -> Markup {
    let sum = parts
        .iter()
        .fold(0_u64, |sum, (_, tokens)| sum.saturating_add(*tokens));
    let view = format!("0 0 {} 1", whole.max(sum).max(1));
    let segments = parts.iter().scan(0_u64, |end, (name, tokens)| {
        let start = *end;
        *end = end.saturating_add(*tokens);
        Some((name, start, tokens))
    });
    html! {
        svg.bar viewBox=(view) preserveAspectRatio="none" aria-hidden="true" {
            @for (name, start, tokens) in segments {
                rect.(word(name)) x=(start) y="0" width=(tokens) height="1" {}
            }
        }
    }
}

fn layers(report: &Report) -> Markup {
    html! {
        div.scroll { table {
            thead { tr {
                th scope="col" { "layer" } th scope="col" { "strategy" } th.number scope="col" { "tokens" }
                th.number scope="col" { "given" } th.number scope="col" { "budget" } th scope="col" { "used" }
                th scope="col" { "status" } th scope="col" { "units" } th.number scope="col" { "bytes" }
                @for compared in &report.compared { th.number scope="col" { (name(&compared.name)) } }
            } }
            tbody { @for (index, layer) in report.layers.iter().enumerate() { (layer_row(report, index, layer)) } }
            tfoot {
                (separators(report))
                tr {
                    th scope="row" { "prompt" } td {}
                    td.number { (tokens(report, "/prompt/tokens", report.prompt.tokens)) } td {}
                    td.number {
                        (limit("/prompt/budget", report.prompt.budget))
                        @if report.prompt.total_budget.is_some() {
                            ", in total " (limit("/prompt/total_budget", report.prompt.total_budget))
                        }
                    } td {} td {} td {}
                    td.number { (number("/prompt/bytes", report.prompt.bytes)) }
                    @for (of, compared) in report.compared.iter().enumerate() {
                        td.number { (counted(compared.estimated, &format!("/compared/{of}/tokens"), compared.tokens)) }
                    }
                }
            }
        } }
    }
}

fn layer_row(report: &Report, index: usize, layer: &Layer) -> Markup {
    let at = |field: &str| format!("/layers/{index}/{field}");
    html! {
        tr {
            th scope="row" { span.swatch.(word(layer.name)) {} (word(layer.name)) }
            td {
                (word(layer.strategy))
                @if let Some(cut_at) = layer.at { ", at " (word(cut_at)) }
                @if let Some(step) = layer.step { ", step " (number(&at("step"), step)) }
            }
            td.number { (tokens(report, &at("tokens"), layer.tokens)) }
            td.number { (tokens(report, &at("tokens_before"), layer.tokens_before)) }
            td.number {
                (limit(&at("budget"), layer.budget))
                @if layer.limit != layer.budget { ", gave way to " (limit(&at("limit"), layer.limit)) }
            }
            td { @if let Some(budget) = layer.budget { (bar(&[(layer.name, layer.tokens)], budget)) } }
            td { (status(&word(layer.status))) }
            td {
                @if let Some(units) = layer.units.as_ref().filter(|units| units.given > 0) {
                    (number(&at("units/kept"), units.kept)) " of " (number(&at("units/given"), units.given))
                }
            }
            td.number { (number(&at("bytes"), layer.bytes)) }
            @for (of, compared) in report.compared.iter().enumerate() {
                td.number {
                    @if let Some(tokens) = compared.layers.get(index) {
                        (counted(compared.estimated, &format!("/compared/{of}/layers/{index}"), *tokens))
                    }
                }
            }
        }
    }
}

fn separators(report: &Report) -> Markup {
    let separators = &report.prompt.separators;
    html! {
        tr {
            th scope="row" { "separators" }
            td { (number("/prompt/separators/count", separators.count)) " between layers" }
            td.number { (tokens(report, "/prompt/separators/tokens", separators.tokens)) }
            td {} td {} td {} td {} td {}
            td.number { (number("/prompt/separators/bytes", separators.bytes)) }
            @for (of, compared) in report.compared.iter().enumerate() {
                td.number { (counted(compared.estimated, &format!("/compared/{of}/separators"), compared.separators)) }
            }
        }
    }
}

fn status(status: &str) -> Markup {
    html! { span.status.(status) { (status) } }
}

fn foreign(report: &Report) -> Markup {
    html! {
        @if let Some(foreign) = &report.foreign {
            @if foreign.nested > 0 || foreign.ignored > 0 {
                p.note {
                    "Instruction files that may be other people's: "
                    (number("/foreign/nested", foreign.nested)) " from nested repositories, "
                    (number("/foreign/ignored", foreign.ignored)) " from ignored directories."
                }
            }
        }
    }
}

fn warnings(report: &Report) -> Markup {
    html! {
        ul {
            @for (index, warning) in report.warnings.iter().enumerate() {
                li {
                    span.swatch.(word(warning.layer)) {} (word(warning.layer)) ": " (name(&warning.message))
                    " (" (name(&warning.kind)) ", "
                    (number(&format!("/warnings/{index}/count"), warning.count)) " in all, the first at byte "
                    (number(&format!("/warnings/{index}/offset"), warning.offset)) ", "
                    (number(&format!("/warnings/{index}/length"), warning.length)) " bytes)"
                }
            }
        }
    }
}

// What changed

fn changed(diff: &Diff) -> Markup {
    let common = &diff.common;
    let tokens = |pointer: &str, value: u64| counted(diff.estimated, pointer, value);
    html! {
        p {
            @match &diff.first_difference {
                None => "The bytes are the same. ",
                Some(difference) => {
                    "The first byte that differs is " (number("/diff/first_difference/byte", difference.byte))
                    ": before, " (place("/diff/first_difference/before", difference.before.as_ref()))
                    "; now, " (place("/diff/first_difference/after", difference.after.as_ref())) ". "
                }
            }
            "A provider's cache can reuse " (tokens("/diff/common/tokens", common.tokens))
            " tokens (" (number("/diff/common/bytes", common.bytes)) " bytes, "
            "whole layers: " (number("/diff/common/layers", common.layers)) ") of "
            (tokens("/diff/tokens", diff.tokens)) "; before, there were "
            (tokens("/diff/tokens_before", diff.tokens_before)) "."
        }
        @if !diff.settings.is_empty() {
            ul { @for setting in &diff.settings {
                li { (name(&setting.name)) ": " s { (name(&setting.before)) } " " (name(&setting.after)) }
            } }
        }
        @if !diff.changes.is_empty() {
            div.scroll { table {
                thead { tr {
                    th scope="col" { "change" } th scope="col" { "what" } th.number scope="col" { "tokens before" }
                    th.number scope="col" { "tokens now" } th scope="col" { "why" }
                } }
                tbody { @for (index, change) in diff.changes.iter().enumerate() {
                    tr {
                        td { (status(&word(change.change))) }
                        td.what { span.swatch.(word(change.layer)) {} (item_name(change.layer, change.id.as_ref())) }
                        td.number { (tokens(&format!("/diff/changes/{index}/tokens_before"), change.tokens_before)) }
                        td.number { (tokens(&format!("/diff/changes/{index}/tokens"), change.tokens)) }
                        td { (name(&change.message)) }
                    }
                } }
            } }
        }
    }
}

fn place(pointer: &str, place: Option<&Place>) -> Markup {
    html! {
        @match place {
            None => "the end",
            Some(place) => {
                (item_name(place.layer, place.id.as_ref()))
                @match place.byte {
                    Some(byte) => { " at its byte " (number(&format!("{pointer}/byte"), byte)) }
                    None => " after a separator",
                }
            }
        }
    }
}

fn item_name(layer: LayerName, id: Option<&Shown>) -> Markup {
    html! { (word(layer)) @if let Some(id) = id { " " (name(id)) } }
}

// Everything considered

fn considered(report: &Report) -> Markup {
    html! {
        div.scroll { table {
            thead { tr {
                th.number scope="col" { "rank" } th scope="col" { "what" } th scope="col" { "status" }
                th.number scope="col" { "tokens" } th.number scope="col" { "given" }
                th.number scope="col" { "bytes" } th scope="col" { "why" } th scope="col" { "sha256" }
            } }
            @for (index, layer) in report.layers.iter().enumerate() { (layer_items(report, index, layer)) }
        } }
    }
}

fn layer_items(report: &Report, index: usize, layer: &Layer) -> Markup {
    let at = |field: &str| format!("/layers/{index}/separators/{field}");
    html! {
        tbody {
            tr.group {
                th colspan="6" scope="rowgroup" {
                    span.swatch.(word(layer.name)) {} (word(layer.name))
                    @if layer.items.is_empty() { span.note { ": nothing was given" } }
                }
                td.note { "as sent, and the prompt up to its end" }
                td { code.hash { (layer.sha256) } code.hash { (layer.prefix_sha256) } }
            }
            @for (item, of) in layer.items.iter().zip(0_usize..) {
                (item_row(report, &format!("/layers/{index}/items/{of}"), item))
            }
            @if layer.units.is_some() {
                tr.separators {
                    td {} td { (number(&at("count"), layer.separators.count)) " separators" } td {}
                    td.number { (tokens(report, &at("tokens"), layer.separators.tokens)) } td {}
                    td.number { (number(&at("bytes"), layer.separators.bytes)) } td {} td {}
                }
            }
        }
    }
}

fn item_row(report: &Report, pointer: &str, item: &Item) -> Markup {
    let at = |field: &str| format!("{pointer}/{field}");
    let what = match &item.id {
        Some(id) => name(id),
        None => html! { "its text" },
    };
    html! {
        tr.(word(item.status)) {
            td.number { @if let Some(rank) = item.rank { (number(&at("rank"), rank)) } }
            td.what { @if matches!(item.status, Status::Dropped | Status::Unused) { s { (what) } } @else { (what) } }
            td { (status(&word(item.status))) }
            td.number { (tokens(report, &at("tokens"), item.tokens)) }
            td.number { @if let Some(before) = item.tokens_before { (tokens(report, &at("tokens_before"), before)) } }
            td.number { (number(&at("bytes"), item.bytes)) }
            td { (name(&item.message)) }
            td { @if let Some(sha256) = &item.sha256 { code.hash { (sha256) } } }
        }
    }
}

// The prompt

/// Hidden where no script runs; a browser's own search works there.
fn search() -> Markup {
    html! {
        form #search hidden role="search" {
            label { "Search " input type="search" name="text" autocomplete="off" spellcheck="false"; }
            " " button type="submit" { "Next" } " " output {}
        }
    }
}

fn prompt(report: &Report, text: &str) -> Markup {
    html! {
        @if text.is_empty() { p.note { "It is empty." } }
        @for layer in &report.layers {
            @if let Some(sent) = part(text, layer.offset, layer.bytes) {
                details open {
                    summary { span.swatch.(word(layer.name)) {} (word(layer.name)) }
                    // Of a line feed right behind the tag nothing is shown; the text's own comes after it.
                    pre.(word(layer.name)) { "\n" (sent_items(layer, text, sent)) }
                }
            }
        }
    }
}

fn part(text: &str, offset: Option<u64>, bytes: u64) -> Option<&str> {
    let offset = usize::try_from(offset?).ok()?;
    text.get(offset..offset.checked_add(usize::try_from(bytes).ok()?)?)
}

/// A layer's text with its units apart, or as a whole where they are not found in it.
fn sent_items(layer: &Layer, text: &str, sent: &str) -> Markup {
    let items: Vec<(&Item, &str)> = layer
        .items
        .iter()
        .filter_map(|item| Some((item, part(text, item.offset, item.bytes)?)))
        .collect();
    html! {
        @if layer.units.is_none() || items.is_empty() { (visible(sent)) }
        @else {
            @for (index, (item, text)) in items.iter().enumerate() {
                @if index > 0 { (crate::plan::SEPARATOR) }
                @match &item.id {
                    Some(id) => { span.item title=(id.as_str()) { (visible(text)) } }
                    None => { span.item { (visible(text)) } }
                }
            }
        }
    }
}

/// Text with its invisible characters shown, but for line feeds, tabs and what joins emoji and
/// letters.
fn visible(text: &str) -> Markup {
    let mut rest = text;
    html! {
        @while !rest.is_empty() {
            @let plain = split(&mut rest, |character| !is_hidden(character));
            (plain)
            @let hidden = split(&mut rest, is_hidden);
            @if !hidden.is_empty() {
                mark.hidden { @for character in hidden.chars() { (character.escape_unicode()) } }
            }
        }
    }
}

/// Takes the longest prefix of such characters off the text.
fn split<'a>(rest: &mut &'a str, is_such: impl Fn(char) -> bool) -> &'a str {
    let end = rest
        .find(|character| !is_such(character))
        .unwrap_or(rest.len());
    let (taken, left) = rest.split_at_checked(end).unwrap_or((rest, ""));
    *rest = left;
    taken
}

fn is_hidden(character: char) -> bool {
    is_invisible(character) && !matches!(character, '\n' | '\t' | '\u{200c}' | '\u{200d}')
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 4648, section 10.
    #[test]
    fn base64_test_vectors() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xbf]), "+/+/");
    }

    #[test]
    fn numbers_in_groups() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (-1_234_567, "-1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(
            hundredths("/x", 105).into_string(),
            r#"<data value="105" data-of="/x">1.05</data>"#
        );
    }

    #[test]
    fn invisible_characters_are_shown() {
        assert_eq!(
            visible("a\t\n\r\u{202e}<b>\u{1f468}\u{200d}\u{1f467}").into_string(),
            "a\t\n<mark class=\"hidden\">\\u{d}\\u{202e}</mark>&lt;b&gt;\u{1f468}\u{200d}\u{1f467}"
        );
    }
}
