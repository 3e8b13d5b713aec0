//! A passage that a model writes again and again within one text.
//!
//! Eight copies in a row of a passage of L characters are 7 L positions in a row at which the text
//! equals itself L characters before. Such a run holds one of the positions 0, L, 2 L, … in its
//! first copy; so for each L only every Lth position is tried, which makes n ln(n) tries in all,
//! and most of them end at the first character. How far a run goes is found by bisection over
//! hashes of prefixes, so that a text made to end each try late costs little more.

/// A passage is a loop from this many characters on.
const CHARACTERS: usize = 40;
/// … and from this many times in a row.
const TIMES: usize = 8;
/// Longer passages are not looked for, which bounds the time to linear.
const LONGEST: usize = 4_096;

/// A passage and how often it stands in a row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Repeated {
    pub(super) characters: u64,
    pub(super) times: u64,
}

/// The shortest passage of prose of at least 40 characters that stands at least 8 times in a row.
///
/// White space counts as one space. Lines of tables, lists, code and JSON are left out: there
/// repetition is the form.
pub(super) fn repeated(text: &str) -> Option<Repeated> {
    if text.len() < CHARACTERS.saturating_mul(TIMES) {
        return None;
    }
    let prose = Prose::new(text);
    let longest = prose.characters.len().checked_div(TIMES)?.min(LONGEST);
    (CHARACTERS..=longest).find_map(|period| prose.repeated(period))
}

/// Stands for a line that is left out, and equals nothing, not even another one.
const BREAK: char = '\0';

struct Prose {
    characters: Vec<char>,
    hashes: Hashes,
}

impl Prose {
    fn new(text: &str) -> Self {
        let mut characters = Vec::with_capacity(text.len().saturating_add(1));
        let mut fence = None;
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        for line in text.lines() {
            let marks = line.trim_start();
            let mark = ["```", "~~~"]
                .into_iter()
                .find(|mark| marks.starts_with(mark));
            let inside = fence.is_some() || mark.is_some();
            if mark.is_some() && (fence.is_none() || fence == mark) {
                fence = if fence.is_none() { mark } else { None };
            }
            if is_json || inside || is_structure(line) {
                characters.push(BREAK);
                continue;
            }
            for character in line.chars().filter(|character| *character != BREAK) {
                if !character.is_whitespace() {
                    characters.push(character);
                } else if characters.last() != Some(&' ') {
                    characters.push(' ');
                }
            }
            // So that the last copy is as long as the others.
            if characters.last() != Some(&' ') {
                characters.push(' ');
            }
        }
        let hashes = Hashes::new(&characters);
        Prose { characters, hashes }
    }

    fn repeated(&self, period: usize) -> Option<Repeated> {
        let wanted = period.saturating_mul(TIMES.saturating_sub(1));
        (0..self.characters.len())
            .step_by(period)
            .find_map(|start| {
                let before = self.equal_before(start, period);
                let after = self.equal_after(start, period, wanted);
                let run = before.saturating_add(after);
                if run < wanted {
                    return None;
                }
                let start = start.saturating_sub(before);
                // All of the run, and by the characters themselves: hashes could be made to agree.
                let run = self.equal_characters(start, period);
                let passage = self.characters.get(start..start.saturating_add(period))?;
                (run >= wanted && is_prose(passage)).then(|| Repeated {
                    characters: period as u64,
                    times: run.checked_div(period).unwrap_or(0).saturating_add(1) as u64,
                })
            })
    }

    /// How many positions from `start` on equal the one `period` after, up to a bound.
    fn equal_after(&self, start: usize, period: usize, bound: usize) -> usize {
        let other = start.saturating_add(period);
        let room = self.characters.len().saturating_sub(other).min(bound);
        if room == 0 || self.characters.get(start) != self.characters.get(other) {
            return 0;
        }
        longest(room, |length| {
            self.hashes.of(start, length) == self.hashes.of(other, length)
        })
    }

    /// How many positions before `start` equal the one `period` after, up to a period.
    fn equal_before(&self, start: usize, period: usize) -> usize {
        let other = start.saturating_add(period);
        let room = start.min(period.saturating_sub(1));
        if other > self.characters.len() {
            return 0;
        }
        longest(room, |length| {
            self.hashes.of(start.saturating_sub(length), length)
                == self.hashes.of(other.saturating_sub(length), length)
        })
    }

    fn equal_characters(&self, start: usize, period: usize) -> usize {
        let all = self.characters.get(start..).unwrap_or_default();
        let shifted = all.get(period..).unwrap_or_default();
        all.iter()
            .zip(shifted)
            .take_while(|(a, b)| a == b && **a != BREAK)
            .count()
    }
}

/// The largest length up to `room` for which `holds`, where it holds for all smaller ones.
fn longest(room: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, room);
    while low < high {
        let middle = high.saturating_sub(high.saturating_sub(low) / 2);
        if holds(middle) {
            low = middle;
        } else {
            high = middle.saturating_sub(1);
        }
    }
    low
}

/// A line of a table, a list, code or JSON, by how it begins.
fn is_structure(line: &str) -> bool {
    let text = line.trim_start();
    let indent = line.len().saturating_sub(text.len());
    let number = text.trim_start_matches(|character: char| character.is_ascii_digit());
    let numbered =
        number.len() < text.len() && (number.starts_with(". ") || number.starts_with(") "));
    numbered
        || (indent >= 4 && !text.is_empty())
        || line.starts_with('\t')
        || ["- ", "* ", "+ ", "• "]
            .iter()
            .any(|mark| text.starts_with(mark))
        || text.starts_with(['|', '{', '}', '[', ']', '"', '<', '#', '>', '+', '/'])
        || text.ends_with(['|', '{', '}', ';', '>'])
}

/// Mostly letters, and few signs that only code and data are full of.
fn is_prose(passage: &[char]) -> bool {
    let letters = passage.iter().filter(|c| c.is_alphabetic()).count();
    let signs = passage
        .iter()
        .filter(|c| "{}[]|<>=\\_\"".contains(**c))
        .count();
    letters.saturating_mul(2) >= passage.len() && signs.saturating_mul(10) <= passage.len()
}

/// Hashes of a text's prefixes, from which that of any part follows.
struct Hashes {
    prefixes: Vec<u64>,
    powers: Vec<u64>,
}

/// The Mersenne prime 2^61 − 1.
const PRIME: u64 = (1 << 61) - 1;
/// Any number larger than a character.
const BASE: u64 = 0x0012_3456_789a_bcdf;

impl Hashes {
    fn new(characters: &[char]) -> Self {
        let mut prefixes = Vec::with_capacity(characters.len().saturating_add(1));
        let mut powers = Vec::with_capacity(characters.len().saturating_add(1));
        let (mut prefix, mut power) = (0, 1);
        prefixes.push(prefix);
        powers.push(power);
        for (index, character) in characters.iter().enumerate() {
            // No two breaks are alike.
            let value = if *character == BREAK {
                (index as u64).wrapping_add(0x11_0000)
            } else {
                u64::from(*character)
            };
            prefix = add(multiply(prefix, BASE), value);
            power = multiply(power, BASE);
            prefixes.push(prefix);
            powers.push(power);
        }
        Hashes { prefixes, powers }
    }

    /// `None` where the text has no such part.
    fn of(&self, start: usize, length: usize) -> Option<u64> {
        let before = self.prefixes.get(start)?;
        let whole = self.prefixes.get(start.checked_add(length)?)?;
        let shifted = multiply(*before, *self.powers.get(length)?);
        Some(add(*whole, PRIME.wrapping_sub(shifted)))
    }
}

fn add(a: u64, b: u64) -> u64 {
    // Both are below 2^62.
    let sum = a.wrapping_add(b);
    if sum >= PRIME {
        sum.wrapping_sub(PRIME)
    } else {
        sum
    }
}

fn multiply(a: u64, b: u64) -> u64 {
    // Both are below 2^61, so the product is below 2^122.
    let product = u128::from(a).wrapping_mul(u128::from(b));
    let low = (product & u128::from(PRIME)) as u64;
    add(low, (product >> 61) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SENTENCE: &str =
        "I will read the whole file once more to be quite sure that nothing was missed. ";

    fn found(text: &str) -> Option<(u64, u64)> {
        repeated(text).map(|repeated| (repeated.characters, repeated.times))
    }

    #[test]
    fn l15_a_sentence_twelve_times() {
        assert_eq!(SENTENCE.chars().count(), 79);
        assert_eq!(found(&SENTENCE.repeat(12)), Some((79, 12)));
        // Between other things, with lines of its own, and where the last copy has no space.
        let lines = SENTENCE.trim_end().to_owned() + "\n\n";
        let text = format!("First I looked at it.\n{}Then I stopped.", lines.repeat(12));
        assert_eq!(found(&text), Some((79, 12)));
        assert_eq!(found(lines.repeat(12).trim_end()), Some((79, 12)));
    }

    #[test]
    fn seven_times_or_39_characters_are_no_loop() {
        assert_eq!(found(&SENTENCE.repeat(7)), None);
        let short = "This one has thirty-nine characters ok ";
        assert_eq!(short.chars().count(), 39);
        assert_eq!(found(&short.repeat(8)), None);
        // Two of them are a passage of 78.
        assert_eq!(found(&short.repeat(16)), Some((78, 8)));
        assert_eq!(found(&format!("x{}", short.repeat(8))), None);
        let forty = "This one has got the forty characters x ";
        assert_eq!(forty.chars().count(), 40);
        assert_eq!(found(&forty.repeat(8)), Some((40, 8)));
    }

    #[test]
    fn characters_are_not_bytes() {
        let chinese =
            "我会再读一遍整个文件以确保没有遗漏任何东西然后我会再次检查所有的测试是否都通过了对吗";
        assert!(chinese.chars().count() >= 40);
        assert_eq!(
            found(&chinese.repeat(8)),
            Some((chinese.chars().count() as u64, 8))
        );
    }

    #[test]
    fn tables_lists_code_and_json_are_no_loops() {
        let objects = (0..40)
            .map(|id| format!(r#"{{"id":{id},"name":"a customer of the shop","active":true}}"#))
            .collect::<Vec<_>>();
        for text in [
            format!("[{}]", objects.join(",")),
            format!("[\n  {}\n]", objects.join(",\n  ")),
            format!(
                "Here they are: [{}]",
                vec![objects[0].clone(); 40].join(", ")
            ),
            "| a customer of the shop | yes | the same in every row |\n".repeat(20),
            "- a customer of the shop, the same in every item of it\n".repeat(20),
            "1. a customer of the shop, the same in every item of it\n".repeat(20),
            "    let customer = shop.customers.first().unwrap_or_default()\n".repeat(20),
            format!(
                "```\n{}```\n",
                "print a customer of the shop, and once more the same\n".repeat(20)
            ),
            "customer = shop.customers[0]; print(customer.name);\n".repeat(20),
            "=".repeat(1_000),
            "-----|-----|".repeat(100),
            "0, 1, 0, 1, ".repeat(100),
        ] {
            assert_eq!(found(&text), None, "{text}");
        }
        // After a fence is closed prose counts again.
        let text = format!("```\ncode\n```\n{}", SENTENCE.repeat(8));
        assert_eq!(found(&text), Some((79, 8)));
    }

    #[test]
    fn a_line_left_out_ends_a_run() {
        let text = format!("{0}\n- item\n{0}", SENTENCE.repeat(4));
        assert_eq!(found(&text), None);
    }

    #[test]
    fn the_longest_passage() {
        let passage = |length: usize| -> String {
            let mut state = 1_u32;
            (0..length)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    char::from(b'a' + (state >> 24) as u8 % 26)
                })
                .collect()
        };
        assert_eq!(
            found(&passage(LONGEST).repeat(8)),
            Some((LONGEST as u64, 8))
        );
        assert_eq!(found(&passage(LONGEST + 1).repeat(8)), None);
    }

    /// Every start and every period, by comparing.
    fn by_definition(text: &str) -> bool {
        let prose = Prose::new(text);
        let n = prose.characters.len();
        (CHARACTERS..=n / TIMES).any(|period| {
            (0..n).any(|start| {
                start + period * TIMES <= n
                    && prose.equal_characters(start, period) >= period * (TIMES - 1)
                    && is_prose(&prose.characters[start..start + period])
            })
        })
    }

    proptest! {
        #[test]
        fn finds_what_the_definition_says(
            head in "[ab ]{0,50}",
            passage in "[ab ]{38,60}",
            times in 6_usize..10,
            cut in 0_usize..5,
            tail in "[ab\n]{0,50}",
        ) {
            let mut copies = passage.repeat(times);
            copies.truncate(copies.len() - cut);
            let text = format!("{head}{copies}{tail}");
            prop_assert_eq!(repeated(&text).is_some(), by_definition(&text));
        }

        #[test]
        fn nothing_makes_it_crash(text in "(\\PC|\n|```|\0){0,500}", times in 1_usize..10) {
            let _ = repeated(&text.repeat(times));
        }
    }
}
