//! Hashes of a prompt's layers.

use sha2::{Digest, Sha256};

/// For each layer, as its offset in the prompt and its size, the SHA-256 of itself and that of
/// the prompt up to its end, in lower-case hex. A layer of size 0 is no part of the prompt.
///
/// The prompt is read twice, however many layers it has.
///
/// ```
/// use harness_core::assembly::hashes;
///
/// let hashes = hashes(b"id\n\nrule", &[(0, 2), (0, 0), (4, 4)]);
/// assert_eq!(hashes[0].0, hashes[0].1);
/// assert_eq!(hashes[1].0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
/// assert_eq!(hashes[1].1, hashes[0].1);
/// ```
#[must_use]
pub fn hashes(prompt: &[u8], layers: &[(usize, usize)]) -> Vec<(String, String)> {
    let mut prefix = Sha256::new();
    let mut behind = 0;
    layers
        .iter()
        .map(|&(offset, size)| {
            let end = offset.saturating_add(size);
            prefix.update(prompt.get(behind..end).unwrap_or_default());
            behind = behind.max(end);
            let upto = hex(&prefix.clone().finalize());
            // The first layer is the prompt up to its own end.
            let own = if offset == 0 && size > 0 {
                upto.clone()
            } else {
                hex(&Sha256::digest(prompt.get(offset..end).unwrap_or_default()))
            };
            (own, upto)
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or_default();
    let digits = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
    bytes.iter().flat_map(digits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_is_that_of_its_bytes(layers in proptest::collection::vec("[a-z]{0,100}", 0..6)) {
            let mut prompt = String::new();
            let mut places = Vec::new();
            let mut expected = Vec::new();
            for layer in &layers {
                if layer.is_empty() {
                    places.push((0, 0));
                } else {
                    if !prompt.is_empty() {
                        prompt.push_str("\n\n");
                    }
                    places.push((prompt.len(), layer.len()));
                    prompt.push_str(layer);
                }
                expected.push((hex(&Sha256::digest(layer)), hex(&Sha256::digest(&prompt))));
            }
            prop_assert_eq!(hashes(prompt.as_bytes(), &places), expected);
        }

        #[test]
        fn no_place_panics(places in any::<Vec<(usize, usize)>>()) {
            prop_assert_eq!(hashes(b"prompt", &places).len(), places.len());
        }
    }
}
