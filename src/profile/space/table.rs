//! A table with reused slots: blocks, mappings and stacks come and go, and layers refer to them by index.

/// A table with reused slots.
#[derive(Debug, Clone)]
pub struct Table<T> {
    slots: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Table<T> {
    /// Adds `value`.
    pub fn add(&mut self, value: T) -> u32 {
        if let Some(i) = self.free.pop() {
            self.slots[i as usize] = value;
            return i;
        }
        self.reuse(|| value)
    }

    /// A free slot with the value it had, or a new one.
    pub fn reuse(&mut self, new: impl FnOnce() -> T) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(new());
            (self.slots.len() - 1) as u32
        })
    }

    /// Frees a slot; its value stays readable until the slot is used again.
    pub fn release(&mut self, i: u32) {
        self.free.push(i);
    }
}

impl<T> std::ops::Index<u32> for Table<T> {
    type Output = T;
    fn index(&self, i: u32) -> &T {
        &self.slots[i as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Table<T> {
    fn index_mut(&mut self, i: u32) -> &mut T {
        &mut self.slots[i as usize]
    }
}
