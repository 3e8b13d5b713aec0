//! Each file is loaded once, as long as it stays what it is.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use quick_cache::sync::Cache;

use crate::file::{File, Identity, LARGEST_FILE};
use crate::{Error, Tokenizer};

/// How many tokenizers are kept: one of a large vocabulary takes 100 MB and more.
const KEPT: usize = 4;

static LOADED: LazyLock<Cache<Identity, Arc<Tokenizer>>> = LazyLock::new(|| Cache::new(KEPT));

/// The tokenizer that is in a file.
///
/// It is kept for who asks next, and made again when the file's identity, size or times have
/// changed. Of several threads that ask at once one makes it, and the others wait. An error is not
/// kept.
pub fn load(path: &Path) -> Result<Arc<Tokenizer>, Error> {
    let file = File::open(path)?;
    LOADED.get_or_insert_with(&file.identity(), || {
        let json = file.read(LARGEST_FILE)?;
        Tokenizer::new(&json).map(Arc::new)
    })
}
