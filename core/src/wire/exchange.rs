//! What ranks compare of the methods that are alltoalls, of which most parts are empty. Pure; knows
//! no groups.

use super::frame::Fingerprint;
use crate::generated::collective::Collective;

/// A method that is an alltoall to the backends. In the number, the lowest bit is set for a form in
/// which one tensor has all blocks: the others may call the form with a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExchangeMethod {
    /// A permutation of the ranks' tensors.
    Ppermute = 2,
    /// One tensor for all neighbours, one from each.
    NeighborAllgather = 4,
    /// As that, with one tensor for all outputs.
    NeighborAllgatherSingle = 5,
    /// A tensor for each neighbour, one from each.
    NeighborAlltoall = 6,
    /// As that, with one tensor for all inputs, and one for all outputs.
    NeighborAlltoallSingle = 7,
}

/// One call of such a method, as far as ranks compare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The method.
    pub method: ExchangeMethod,
    /// The topology on which it is called, if it is one of a topology.
    pub topology: Option<TopologyNumber>,
    /// Whether this rank has no tensors, so that it does not know the element type.
    pub has_no_tensors: bool,
}

/// A topology of a group, as all ranks know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopologyNumber {
    /// Whether it is a grid, and not a graph.
    pub is_grid: bool,
    /// The lowest bits of the number of the operation that made it.
    pub made_by: u32,
}

/// Where the method is in the detail of a fingerprint; beneath it are those flags, and the number
/// of the operation that made the topology.
const METHOD_AT: u32 = 56;
const SINGLE: u64 = 1 << METHOD_AT;
const HAS_TOPOLOGY: u64 = 1 << 34;
const IS_GRID: u64 = 1 << 33;
const HAS_NO_TENSORS: u64 = 1 << 32;

impl ExchangeMethod {
    /// Every method.
    pub const ALL: [ExchangeMethod; 5] = [
        ExchangeMethod::Ppermute,
        ExchangeMethod::NeighborAllgather,
        ExchangeMethod::NeighborAllgatherSingle,
        ExchangeMethod::NeighborAlltoall,
        ExchangeMethod::NeighborAlltoallSingle,
    ];

    /// Its name, and that in capitals, as hooks have it.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            ExchangeMethod::Ppermute => ("ppermute", "PPERMUTE"),
            ExchangeMethod::NeighborAllgather => ("neighbor_allgather", "NEIGHBOR_ALLGATHER"),
            ExchangeMethod::NeighborAllgatherSingle => {
                ("neighbor_allgather_single", "NEIGHBOR_ALLGATHER_SINGLE")
            }
            ExchangeMethod::NeighborAlltoall => ("neighbor_alltoall", "NEIGHBOR_ALLTOALL"),
            ExchangeMethod::NeighborAlltoallSingle => {
                ("neighbor_alltoall_single", "NEIGHBOR_ALLTOALL_SINGLE")
            }
        }
    }

    /// The name of the method.
    pub const fn name(self) -> &'static str {
        self.names().0
    }

    /// What hooks call it.
    pub const fn capitals(self) -> &'static str {
        self.names().1
    }

    /// Whether one tensor has what stands in several places.
    pub const fn is_single(self) -> bool {
        self as u8 & 1 != 0
    }
}

impl Exchange {
    /// The detail of its fingerprint, which is never that of an alltoall.
    pub fn detail(self) -> u64 {
        let topology = self.topology.map_or(0, |TopologyNumber { is_grid, made_by }| {
            HAS_TOPOLOGY | if is_grid { IS_GRID } else { 0 } | u64::from(made_by)
        });
        let nothing = if self.has_no_tensors { HAS_NO_TENSORS } else { 0 };
        (self.method as u64) << METHOD_AT | topology | nothing
    }

    /// That of a fingerprint, if it has one.
    pub fn of(fingerprint: &Fingerprint) -> Option<Exchange> {
        let Fingerprint { collective, detail, .. } = *fingerprint;
        if collective != Collective::Alltoall as u8 {
            return None;
        }
        let is_one = |method: &ExchangeMethod| u64::from(*method as u8) == detail >> METHOD_AT;
        let method = ExchangeMethod::ALL.into_iter().find(is_one)?;
        let made_by = detail as u32;
        let topology = TopologyNumber { is_grid: detail & IS_GRID != 0, made_by };
        Some(Exchange {
            method,
            topology: Some(topology).filter(|_| detail & HAS_TOPOLOGY != 0),
            has_no_tensors: detail & HAS_NO_TENSORS != 0,
        })
    }
}

impl Fingerprint {
    /// Whether two ranks mean the same operation. What differs may be the form of an exchange, and
    /// the element type where one of them has no tensors.
    #[inline]
    pub fn agrees_with(&self, other: &Fingerprint) -> bool {
        self == other || self.is_same_exchange(other)
    }

    #[cold]
    fn is_same_exchange(&self, other: &Fingerprint) -> bool {
        let (Some(one), Some(another)) = (Exchange::of(self), Exchange::of(other)) else {
            return false;
        };
        let has_type = !(one.has_no_tensors || another.has_no_tensors);
        let compared = |it: &Fingerprint| Fingerprint {
            detail: it.detail & !(SINGLE | HAS_NO_TENSORS),
            dtype: if has_type { it.dtype } else { 0 },
            ..*it
        };
        compared(self) == compared(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE: Option<TopologyNumber> = Some(TopologyNumber { is_grid: false, made_by: 9 });

    fn print(method: ExchangeMethod, topology: Option<TopologyNumber>, dtype: u8) -> Fingerprint {
        let detail = Exchange { method, topology, has_no_tensors: false }.detail();
        let collective = Collective::Alltoall as u8;
        Fingerprint { collective, dtype, detail, ..Fingerprint::default() }
    }

    fn without_tensors(print: Fingerprint) -> Fingerprint {
        Fingerprint { dtype: 4, detail: print.detail | HAS_NO_TENSORS, ..print }
    }

    #[test]
    fn an_exchange_goes_into_a_fingerprint_and_back() {
        let grid = Some(TopologyNumber { is_grid: true, made_by: u32::MAX });
        for method in ExchangeMethod::ALL {
            for topology in [None, MADE, grid] {
                for has_no_tensors in [false, true] {
                    let exchange = Exchange { method, topology, has_no_tensors };
                    let print = Fingerprint { detail: exchange.detail(), ..print(method, None, 0) };
                    assert_eq!(Exchange::of(&print), Some(exchange));
                    assert_eq!(Exchange::of(&Fingerprint { collective: 0, ..print }), None);
                }
            }
            assert_eq!(method.capitals(), method.name().to_uppercase());
            assert_eq!(method.is_single(), method.name().ends_with("_single"));
        }
        assert_eq!(
            Exchange::of(&Fingerprint { detail: 0, ..print(ExchangeMethod::Ppermute, None, 0) }),
            None
        );
    }

    #[test]
    fn methods_topologies_and_types_are_compared() {
        use ExchangeMethod::{NeighborAllgather, NeighborAlltoall, Ppermute};
        let one = print(NeighborAlltoall, MADE, 1);
        let later = Some(TopologyNumber { is_grid: false, made_by: 10 });
        let grid = Some(TopologyNumber { is_grid: true, made_by: 9 });
        assert!(one.agrees_with(&one));
        for other in [
            print(NeighborAllgather, MADE, 1),
            print(Ppermute, None, 1),
            print(NeighborAlltoall, later, 1),
            print(NeighborAlltoall, grid, 1),
            print(NeighborAlltoall, MADE, 2),
            Fingerprint { detail: 0, ..one },
            Fingerprint { algorithm: 1, ..one },
        ] {
            assert!(!one.agrees_with(&other) && !other.agrees_with(&one), "{other:?}");
            if (other.dtype, other.algorithm) == (1, 0) {
                let other = without_tensors(other);
                assert!(!one.agrees_with(&other) && !other.agrees_with(&one), "{other:?}");
            }
        }
    }

    #[test]
    fn a_rank_without_tensors_agrees_on_any_type_and_the_form_is_not_compared() {
        use ExchangeMethod::{NeighborAlltoall, NeighborAlltoallSingle};
        let one = print(NeighborAlltoall, MADE, 1);
        let nothing = without_tensors(one);
        assert!(one.agrees_with(&nothing) && nothing.agrees_with(&one));
        assert!(nothing.agrees_with(&print(NeighborAlltoall, MADE, 2)));
        let single = print(NeighborAlltoallSingle, MADE, 1);
        assert!(one.agrees_with(&single) && single.agrees_with(&nothing));
    }
}
