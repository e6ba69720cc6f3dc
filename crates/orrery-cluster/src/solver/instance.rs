//! A problem as integers: atoms with bounds, conflicts and machine types as bit masks.
//!
//! Services that must coexist form one *atom*; everything that counts nodes counts atoms. Services
//! that no rule names run on every node and take no part in the search.

use std::collections::BTreeSet;

/// A set of atoms, hardware types or image types.
pub(crate) type Mask = u128;

/// Maximum number of atoms, of distinct hardware types and of distinct image types.
pub(crate) const MASK_BITS: usize = 128;

/// Bits of a mask, lowest first.
pub(crate) fn bits(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let bit = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            bit
        })
    })
}

/// A mask with the given number of low bits.
fn low_bits(count: usize) -> Mask {
    if count >= MASK_BITS { Mask::MAX } else { (1 << count) - 1 }
}

/// Services that are placed together.
#[derive(Debug, Clone)]
pub(crate) struct Atom {
    /// Indices into the problem's services.
    pub(crate) services: Vec<usize>,
    /// Minimum and maximum number of nodes.
    pub(crate) lo: u32,
    pub(crate) hi: u32,
    /// The number of nodes is a multiple of this.
    pub(crate) step: u32,
    /// Atoms that never share a node with this one.
    pub(crate) conflicts: Mask,
    pub(crate) hardware: Mask,
    pub(crate) images: Mask,
    pub(crate) cpu: u64,
    pub(crate) memory: u64,
    /// Share of the largest machine that the atom occupies, in thousandths, at least one.
    pub(crate) bulk: u64,
    /// Anti-affinity: index into `Instance::spreads`.
    pub(crate) spread: Option<usize>,
}

/// `count(atom) >= ceil(count(of) / per)`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    pub(crate) atom: usize,
    pub(crate) of: usize,
    pub(crate) per: u32,
}

/// A hardware type with a distinct capability.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// Index into the problem's hardware.
    pub(crate) index: usize,
    pub(crate) cpu: u64,
    pub(crate) memory: u64,
    /// Rank in the preference list, and order among equals.
    pub(crate) rank: usize,
    pub(crate) tie: usize,
}

/// An image type with a distinct capability.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) index: usize,
    pub(crate) rank: usize,
    pub(crate) tie: usize,
}

/// Limit of an atom for each value of a label.
#[derive(Debug, Clone)]
pub(crate) struct Spread {
    pub(crate) max: u32,
    /// First slot of this atom's values in a vector of residual capacities.
    pub(crate) first: usize,
    /// Slot of the value of each domain; `None` where the label is absent.
    pub(crate) slots: Vec<Option<usize>>,
}

/// The integer program that the search works on.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub(crate) size: u32,
    /// In ascending order of their first names.
    pub(crate) atoms: Vec<Atom>,
    pub(crate) ratios: Vec<Ratio>,
    /// Sets of three or more atoms that no node may run together.
    pub(crate) wide: Vec<Mask>,
    /// In order of preference.
    pub(crate) machines: Vec<Machine>,
    /// In order of preference.
    pub(crate) images: Vec<Image>,
    /// Hardware of each combination of label values used by a rule; one domain if there is none.
    pub(crate) domains: Vec<Mask>,
    pub(crate) spreads: Vec<Spread>,
    /// Number of slots of all spreads together.
    pub(crate) slots: usize,
    /// Services on every node.
    pub(crate) everywhere: Vec<usize>,
    /// True if any atom occupies processors or memory.
    pub(crate) capacity: bool,
    /// Upper bounds after propagation of ratios and steps.
    pub(crate) ceiling: Vec<u32>,
}

/// The problem has more constrained services or distinct machine types than a search supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {MASK_BITS} constrained services or distinct machine types")]
pub struct TooLarge;

/// A set of atoms on one node, with the machine types that still support it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Partial {
    pub(crate) atoms: Mask,
    pub(crate) hardware: Mask,
    pub(crate) images: Mask,
    pub(crate) cpu: u64,
    pub(crate) memory: u64,
}

impl Instance {
    /// The empty node in a domain.
    pub(crate) fn start(&self, domain: usize) -> Partial {
        Partial {
            atoms: 0,
            hardware: self.domains[domain],
            images: low_bits(self.images.len()),
            cpu: 0,
            memory: 0,
        }
    }

    /// Adds an atom to a node, unless a rule forbids it or no machine type supports it.
    pub(crate) fn extend(&self, node: &Partial, atom: usize) -> Option<Partial> {
        let added = &self.atoms[atom];
        let atoms = node.atoms | 1 << atom;
        if added.hi == 0 || added.conflicts & node.atoms != 0 {
            return None;
        }
        if self.wide.iter().any(|rule| rule >> atom & 1 == 1 && rule & atoms == *rule) {
            return None;
        }
        let images = node.images & added.images;
        let mut hardware = node.hardware & added.hardware;
        let (cpu, memory) =
            (node.cpu.saturating_add(added.cpu), node.memory.saturating_add(added.memory));
        if self.capacity {
            for machine in bits(hardware) {
                if self.machines[machine].cpu < cpu || self.machines[machine].memory < memory {
                    hardware &= !(1 << machine);
                }
            }
        }
        (hardware != 0 && images != 0).then_some(Partial { atoms, hardware, images, cpu, memory })
    }

    /// Sort key of nodes with equally many services, smaller first: preference of the machine
    /// types.
    pub(crate) fn machine_key(&self, node: &Partial) -> (usize, usize, usize, usize) {
        let machine = &self.machines[node.hardware.trailing_zeros() as usize];
        let image = &self.images[node.images.trailing_zeros() as usize];
        (machine.rank, image.rank, machine.tie, image.tie)
    }

    /// Slot of residual capacity that an atom on a node of the domain uses, if it is spread.
    pub(crate) fn slot(&self, atom: usize, domain: usize) -> Option<usize> {
        self.spreads[self.atoms[atom].spread?].slots[domain]
    }

    /// Residual capacities at the start.
    pub(crate) fn initial_caps(&self) -> Vec<u32> {
        let mut caps = vec![0; self.slots];
        for spread in &self.spreads {
            for slot in spread.slots.iter().flatten() {
                caps[*slot] = spread.max;
            }
        }
        caps
    }

    /// Raises counts to the least ones that satisfy ratios and steps.
    pub(crate) fn raise(&self, counts: &mut [u32]) -> bool {
        loop {
            let mut changed = false;
            for (count, atom) in counts.iter_mut().zip(&self.atoms) {
                let rounded = count.div_ceil(atom.step).saturating_mul(atom.step);
                changed |= rounded != *count;
                *count = rounded;
            }
            for ratio in &self.ratios {
                let needed = counts[ratio.of].div_ceil(ratio.per);
                if counts[ratio.atom] < needed {
                    counts[ratio.atom] = needed;
                    changed = true;
                }
            }
            if counts.iter().zip(&self.ceiling).any(|(c, max)| c > max) {
                return false;
            }
            if !changed {
                return true;
            }
        }
    }

    /// Lowers counts to the greatest ones that satisfy ratios and steps.
    pub(crate) fn lower(&self, counts: &mut [u32]) {
        loop {
            let mut changed = false;
            for (count, atom) in counts.iter_mut().zip(&self.atoms) {
                let rounded = *count / atom.step * atom.step;
                changed |= rounded != *count;
                *count = rounded;
            }
            for ratio in &self.ratios {
                let most = counts[ratio.atom].saturating_mul(ratio.per);
                if counts[ratio.of] > most {
                    counts[ratio.of] = most;
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// True if counts of different atoms depend on each other, or cannot change by one.
    pub(crate) fn coupled(&self) -> bool {
        !self.ratios.is_empty() || self.atoms.iter().any(|atom| atom.step > 1)
    }
}

impl Instance {
    /// Lowers the bounds of atoms for which there is no machine type, or too few label values.
    pub(crate) fn bound_by_machines(&mut self) {
        for atom in 0..self.atoms.len() {
            let usable: Vec<usize> = (0..self.domains.len())
                .filter(|&domain| self.extend(&self.start(domain), atom).is_some())
                .collect();
            let mut most = if usable.is_empty() { 0 } else { u32::MAX };
            if let Some(spread) = self.atoms[atom].spread {
                let spread = &self.spreads[spread];
                let slots: BTreeSet<usize> =
                    usable.iter().filter_map(|&domain| spread.slots[domain]).collect();
                let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
                most = most.min(spread.max.saturating_mul(count));
            }
            let hi = &mut self.atoms[atom].hi;
            *hi = (*hi).min(most);
        }
    }
}
