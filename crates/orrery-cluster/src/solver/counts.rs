//! Count vectors in descending lexicographic order.

/// Errors of the enumeration of count vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CountsError {
    #[error("needs at least one slot")]
    NoSlots,
    #[error("needs at least one item")]
    NoItems,
    #[error("max length mismatch")]
    LengthMismatch,
}

/// All ways to distribute items over slots with maxima, in descending lexicographic order.
#[derive(Debug, Clone)]
pub struct DescendingCounts {
    max: Vec<u32>,
    next: Option<Vec<u32>>,
}

impl DescendingCounts {
    /// Starts with the greatest vector.
    ///
    /// # Errors
    /// No slots, no items, or another number of maxima than slots.
    pub fn new(slots: usize, items: u32, max: Option<&[u32]>) -> Result<Self, CountsError> {
        if slots == 0 {
            return Err(CountsError::NoSlots);
        }
        if items == 0 {
            return Err(CountsError::NoItems);
        }
        let max = max.map_or_else(|| vec![items; slots], <[u32]>::to_vec);
        if max.len() != slots {
            return Err(CountsError::LengthMismatch);
        }
        let next = fill(vec![0; slots], 0, items, &max);
        Ok(Self { max, next })
    }

    /// Starts with the given vector, or the greatest one below it that respects the maxima.
    ///
    /// # Errors
    /// No slots, no items, or another number of maxima than slots.
    pub fn starting_at(initial: &[u32], max: &[u32]) -> Result<Self, CountsError> {
        if initial.is_empty() {
            return Err(CountsError::NoSlots);
        }
        if initial.len() != max.len() {
            return Err(CountsError::LengthMismatch);
        }
        let items: u32 = initial.iter().sum();
        if items == 0 {
            return Err(CountsError::NoItems);
        }
        let over = initial.iter().zip(max).position(|(count, max)| count > max);
        let next = match over {
            None => Some(initial.to_vec()),
            // The first count that is too high becomes its maximum, and the rest follows.
            Some(slot) => {
                let mut counts = initial.to_vec();
                let rest: u32 = counts[slot..].iter().sum();
                counts[slot..].fill(0);
                fill(counts.clone(), slot, rest, max).or_else(|| decrease(counts, slot, rest, max))
            }
        };
        Ok(Self { max: max.to_vec(), next })
    }
}

/// Puts items into slots from `from` on, as many as possible in each.
fn fill(mut counts: Vec<u32>, from: usize, mut items: u32, max: &[u32]) -> Option<Vec<u32>> {
    for (count, max) in counts.iter_mut().zip(max).skip(from) {
        *count = items.min(*max);
        items -= *count;
    }
    (items == 0).then_some(counts)
}

/// Moves one item from the last slot before `end` that can spare it; `items` were taken from there
/// on.
fn decrease(mut counts: Vec<u32>, end: usize, items: u32, max: &[u32]) -> Option<Vec<u32>> {
    let mut items = items;
    for slot in (0..end).rev() {
        if counts[slot] > 0 {
            let mut next = counts.clone();
            next[slot] -= 1;
            if let Some(found) = fill(next, slot + 1, items + 1, max) {
                return Some(found);
            }
        }
        items += counts[slot];
        counts[slot] = 0;
    }
    None
}

impl Iterator for DescendingCounts {
    type Item = Vec<u32>;

    fn next(&mut self) -> Option<Vec<u32>> {
        let current = self.next.take()?;
        self.next = decrease(current.clone(), current.len(), 0, &self.max);
        Some(current)
    }
}
