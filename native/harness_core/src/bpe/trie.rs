//! All tokens of a vocabulary as a trie of bytes in one array.
//!
//! A double array: the child of a node for a byte is at `base ^ byte`, if that slot names the node
//! as its parent. So a step is one load, and a slot and all its siblings are in one block of 256.

// Slots are made from 22 bits, blocks are whole, and nodes are indices of the vectors they were
// pushed to; `Builder` keeps these invariants, so indices are in range and sums can't overflow.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// No token ends here.
pub(super) const NONE: u32 = 0x3_ffff;

const SLOT: u64 = 0x3f_ffff;
/// A slot nothing is in names no slot as its parent.
const FREE: u64 = SLOT << 40 | NONE as u64;

/// The trie. A slot holds, from the lowest bit: the token that ends there (18 bits), the base of
/// its children (22), its parent's slot (22).
pub(super) struct Trie {
    slots: Vec<u64>,
    /// By a character of three bytes (16 bits) that is a token: its slot, otherwise 0. Chinese,
    /// Japanese and Korean begin all their tokens so.
    leads: Vec<u32>,
}

impl Trie {
    /// The longest token that `bytes` begins with.
    #[inline(always)]
    pub(super) fn longest(&self, bytes: &[u8]) -> u32 {
        let mut best = NONE;
        let mut at = 0;
        let mut rest = bytes;
        if let [first, second, third, after @ ..] = bytes
            && *first >> 4 == 14
        {
            let lead = self.leads[lead(*first, *second, *third)];
            if lead != 0 {
                (at, rest) = (u64::from(lead), after);
                best = self.slots[lead as usize] as u32 & NONE;
            }
        }
        let mut slot = self.slots[at as usize];
        for byte in rest {
            let base = slot >> 18 & SLOT;
            if base == 0 {
                break;
            }
            let next = base ^ u64::from(*byte);
            slot = self.slots[next as usize];
            if slot >> 40 != at {
                break;
            }
            at = next;
            let token = slot as u32 & NONE;
            if token != NONE {
                best = token;
            }
        }
        best
    }

    /// The slot that `bytes` lead to, 0 for none.
    fn slot(&self, bytes: &[u8]) -> u32 {
        let mut at = 0;
        for byte in bytes {
            let next = (self.slots[at as usize] >> 18 & SLOT) ^ u64::from(*byte);
            if self.slots[next as usize] >> 40 != at {
                return 0;
            }
            at = next;
        }
        at as u32
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<u64>() + self.leads.len() * size_of::<u32>()
    }
}

/// Collects tokens, then lays the trie out.
pub(super) struct Builder {
    nodes: Vec<Node>,
    /// `node << 28 | parent << 8 | byte`, hashed by the lower 28 bits; 0 where free.
    children: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Node {
    token: u32,
    byte: u8,
    /// The newest child and the next older sibling; 0 (the root is nobody's child) for none.
    child: u32,
    sibling: u32,
}

/// A node that is being built.
#[derive(Clone, Copy)]
pub(super) struct NodeId(u32);

impl Builder {
    /// The node above all others.
    pub(super) const ROOT: NodeId = NodeId(0);

    pub(super) fn new() -> Self {
        Self {
            nodes: vec![Node {
                token: NONE,
                byte: 0,
                child: 0,
                sibling: 0,
            }],
            children: vec![0; 1 << 20],
        }
    }

    /// The node below `from` by `bytes`, made where it isn't there; `None` when the trie is full.
    pub(super) fn walk(&mut self, from: NodeId, bytes: &[u8]) -> Option<NodeId> {
        let mut at = from.0;
        for byte in bytes {
            let key = u64::from(at) << 8 | u64::from(*byte);
            let mut hash = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as usize;
            at = loop {
                let entry = self.children[hash];
                if entry == 0 {
                    let node = self.nodes.len() as u32;
                    // Half of the table, so that looking for a free entry always ends.
                    if node >= 1 << 19 {
                        return None;
                    }
                    self.children[hash] = u64::from(node) << 28 | key;
                    let sibling = std::mem::replace(&mut self.nodes[at as usize].child, node);
                    self.nodes.push(Node {
                        token: NONE,
                        byte: *byte,
                        child: 0,
                        sibling,
                    });
                    break node;
                }
                if entry & 0xfff_ffff == key {
                    break (entry >> 28) as u32;
                }
                hash = (hash + 1) & (self.children.len() - 1);
            };
        }
        Some(NodeId(at))
    }

    /// Ends a token at a node; `false` if one ends there already.
    pub(super) fn end(&mut self, node: NodeId, token: u32) -> bool {
        std::mem::replace(&mut self.nodes[node.0 as usize].token, token) == NONE
    }

    /// Lays the trie out, and says for each of `tokens` the longest other token it begins with.
    pub(super) fn build(self, tokens: usize) -> (Trie, Vec<u32>) {
        let mut shorter = vec![NONE; tokens];
        let mut layout = Layout::default();
        // The root has the first block for itself, so no base is 0: that stands for no children.
        layout.add_block();
        layout.free[0] = [0; 4];
        // Of every node: its slot, and the last token that ends above it. A node comes after its
        // parent, and what common tokens need comes first and together.
        let mut placed = vec![(0u32, NONE); self.nodes.len()];
        let mut bytes = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let (slot, above) = placed[index];
            if node.token != NONE {
                shorter[node.token as usize] = above;
            }
            let above = if node.token == NONE {
                above
            } else {
                node.token
            };
            let mut children = Vec::new();
            bytes.clear();
            let mut child = node.child;
            while child != 0 {
                children.push(child);
                bytes.push(self.nodes[child as usize].byte);
                child = self.nodes[child as usize].sibling;
            }
            let base = if bytes.is_empty() {
                0
            } else {
                layout.base_for(&bytes)
            };
            let parent = layout.slots[slot as usize] & SLOT << 40;
            layout.slots[slot as usize] = parent | base << 18 | u64::from(node.token);
            for (child, byte) in children.iter().zip(&bytes) {
                let at = base ^ u64::from(*byte);
                layout.take(at as usize);
                layout.slots[at as usize] = u64::from(slot) << 40 | u64::from(NONE);
                placed[*child as usize] = (at as u32, above);
            }
        }
        layout.slots.shrink_to_fit();
        let mut trie = Trie {
            slots: layout.slots,
            leads: Vec::new(),
        };
        let mut leads = vec![0; 1 << 16];
        for first in 0xe0..=0xefu8 {
            for second in 0x80..=0xbf {
                for third in 0x80..=0xbf {
                    let slot = trie.slot(&[first, second, third]);
                    // Of those that are no token, a part may be one: go there step by step.
                    if slot != 0 && trie.slots[slot as usize] as u32 & NONE != NONE {
                        leads[lead(first, second, third)] = slot;
                    }
                }
            }
        }
        trie.leads = leads;
        (trie, shorter)
    }
}

/// The 16 bits of a character of three bytes.
#[inline(always)]
fn lead(first: u8, second: u8, third: u8) -> usize {
    usize::from(first & 15) << 12 | usize::from(second & 63) << 6 | usize::from(third & 63)
}

/// Which slots are taken while the trie is laid out.
#[derive(Default)]
struct Layout {
    slots: Vec<u64>,
    /// The free slots of each block, one bit each.
    free: Vec<[u64; 4]>,
    /// No block before this one has a free slot.
    first_free: usize,
}

impl Layout {
    fn add_block(&mut self) {
        self.slots.resize(self.slots.len() + 256, FREE);
        self.free.push([u64::MAX; 4]);
    }

    fn take(&mut self, slot: usize) {
        self.free[slot / 256][slot / 64 % 4] &= !(1 << (slot % 64));
    }

    /// A base at which the slots of all these bytes are free.
    fn base_for(&mut self, bytes: &[u8]) -> u64 {
        if let [byte] = bytes {
            while self.first_free < self.free.len() && self.free[self.first_free] == [0; 4] {
                self.first_free += 1;
            }
            if self.first_free == self.free.len() {
                self.add_block();
            }
            let slot = first(&self.free[self.first_free]).unwrap_or(0);
            return (self.first_free * 256 + slot) as u64 ^ u64::from(*byte);
        }
        // Old blocks have holes that only few fit into: look at the last ones only.
        let from = self.free.len().saturating_sub(16).max(self.first_free);
        for block in from..self.free.len() {
            if let Some(base) = first(&bases(&self.free[block], bytes)) {
                return (block * 256 + base) as u64;
            }
        }
        self.add_block();
        let block = self.free.len() - 1;
        let base = first(&bases(&self.free[block], bytes)).unwrap_or(0);
        (block * 256 + base) as u64
    }
}

/// The bases in a block, one bit each, at which the slots of all bytes are free.
fn bases(free: &[u64; 4], bytes: &[u8]) -> [u64; 4] {
    let mut all = [u64::MAX; 4];
    for byte in bytes {
        let high = usize::from(byte >> 6);
        for word in 0..4 {
            all[word] &= xor_bits(free[word ^ high], byte & 63);
        }
        if all == [0; 4] {
            break;
        }
    }
    all
}

/// The bits of a word, each moved to its place exclusive-or `by`.
fn xor_bits(mut word: u64, by: u8) -> u64 {
    const MASKS: [u64; 6] = [
        0x5555_5555_5555_5555,
        0x3333_3333_3333_3333,
        0x0f0f_0f0f_0f0f_0f0f,
        0x00ff_00ff_00ff_00ff,
        0x0000_ffff_0000_ffff,
        0x0000_0000_ffff_ffff,
    ];
    for (bit, mask) in MASKS.iter().enumerate() {
        if by >> bit & 1 == 1 {
            let shift = 1 << bit;
            word = (word & mask) << shift | word >> shift & mask;
        }
    }
    word
}

fn first(bits: &[u64; 4]) -> Option<usize> {
    bits.iter()
        .position(|word| *word != 0)
        .map(|word| word * 64 + bits[word].trailing_zeros() as usize)
}
