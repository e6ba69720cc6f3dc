//! Size of the next batch of reads that run ahead, as large as the last ones were useful.

/// Limit of a batch.
const SIZE_MAX: usize = 128;

/// Adapts to the number of states that are used before a change makes the rest worthless: doubled
/// after a batch that was used up, and otherwise the number that was used.
#[derive(Debug)]
pub struct ReadAheadWindow {
    size: usize,
    used: usize,
    was_dropped: bool,
}

impl Default for ReadAheadWindow {
    fn default() -> Self {
        ReadAheadWindow { size: SIZE_MAX, used: 0, was_dropped: true }
    }
}

impl ReadAheadWindow {
    /// Number of reads of the next batch, at least one.
    pub fn size(&self) -> usize {
        if self.was_dropped { self.size } else { (self.size * 2).min(SIZE_MAX) }
    }

    /// Records a new batch.
    pub fn start_batch(&mut self) {
        self.size = self.size();
        (self.used, self.was_dropped) = (0, false);
    }

    /// Records that a state was used.
    pub fn record_use(&mut self) {
        self.used += 1;
    }

    /// Records that the rest of a batch was dropped.
    pub fn drop_rest(&mut self) {
        self.size = self.used.clamp(1, SIZE_MAX);
        self.was_dropped = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_follows_the_use_of_its_batches() {
        let mut window = ReadAheadWindow::default();
        assert_eq!(window.size(), SIZE_MAX);
        window.start_batch();
        window.record_use();
        window.drop_rest();
        assert_eq!(window.size(), 1, "one change after another");
        for size in [2, 4, 8] {
            window.start_batch();
            assert_eq!(window.size(), size, "all were used");
        }
        for _ in 0..10 {
            window.start_batch();
        }
        assert_eq!(window.size(), SIZE_MAX);
        window.start_batch();
        (0..49).for_each(|_| window.record_use());
        window.drop_rest();
        assert_eq!(window.size(), 49);
    }
}
