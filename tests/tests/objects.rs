//! Values that are not tensors, from rank to rank.

#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::collections::BTreeMap;

use polyrank::Error;
use polyrank::objects::{Codec, Payload};
use polyrank_tests::languages::{Language, Program, every_rank_says};
use polyrank_tests::ranks;

type Record = BTreeMap<String, (u32, Option<f64>, Vec<String>)>;

fn record(rank: u32) -> Record {
    let texts = (0..rank * 100).map(|index| format!("text {index}")).collect();
    BTreeMap::from([(format!("rank {rank}"), (rank, rank.is_multiple_of(2).then_some(0.5), texts))])
}

#[test]
fn objects_come_as_they_were_given() {
    for size in [1, 2, 3, 5, 8] {
        ranks(size, |group| {
            let rank = group.rank();
            let all: Vec<Record> = (0..size).map(record).collect();
            for root in [0, size - 1] {
                let mut mine = record(rank);
                group.broadcast_object(&mut mine, root).unwrap();
                assert_eq!(mine, record(root));
                assert_eq!(group.all_gather_object(&record(rank)).unwrap(), all);
                let gathered = group.gather_object(&record(rank), root).unwrap();
                assert_eq!(gathered, (rank == root).then(|| all.clone()));
                let given = if rank == root { all.as_slice() } else { &[] };
                assert_eq!(group.scatter_object(given, root).unwrap(), record(rank));
            }
            if rank > 0 {
                group.send_object(&record(rank), 0).unwrap();
            } else {
                let mut senders = Vec::new();
                for _ in 1..size {
                    let (object, sender) = group.recv_object::<Record>(None).unwrap();
                    assert_eq!(object, record(sender));
                    senders.push(sender);
                }
                senders.sort_unstable();
                assert_eq!(senders, (1..size).collect::<Vec<_>>());
            }
        });
    }
}

/// A value that serde cannot encode.
struct BrokenValue(bool);

impl serde::Serialize for BrokenValue {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 {
            return Err(serde::ser::Error::custom("it is broken"));
        }
        serializer.serialize_u8(7)
    }
}

impl<'de> serde::Deserialize<'de> for BrokenValue {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u8::deserialize(deserializer).map(|_| BrokenValue(false))
    }
}

#[test]
fn an_object_that_cannot_be_encoded_raises_on_every_rank() {
    ranks(3, |group| {
        let rank = group.rank();
        let says = |error: Error, who: u32| {
            let text = format!("rank {who} gave no object");
            assert!(error.to_string().contains(&text), "{error}");
            assert!(matches!(error, Error::InvalidType { .. }));
        };
        says(group.all_gather_object(&BrokenValue(rank == 2)).err().unwrap(), 2);
        says(group.broadcast_object(&mut BrokenValue(rank == 1), 1).err().unwrap(), 1);
        says(group.gather_object(&BrokenValue(rank == 2), 0).err().unwrap(), 2);
        let given = if rank == 0 {
            vec![BrokenValue(false), BrokenValue(true), BrokenValue(false)]
        } else {
            vec![]
        };
        says(group.scatter_object(&given, 0).err().unwrap(), 0);
        let few = if rank == 0 { vec![1u8] } else { vec![] };
        let error = group.scatter_object(&few, 0).unwrap_err();
        assert!(error.to_string().contains("1 objects for 3 ranks"), "{error}");
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
        match rank {
            0 => says(group.send_object(&BrokenValue(true), 1).unwrap_err(), 0),
            1 => says(group.recv_object::<BrokenValue>(Some(0)).err().unwrap(), 0),
            _ => {}
        }
        // An object of another type is an error where it is read, and the group continues.
        match rank {
            0 => group.send_object(&5u32, 1).unwrap(),
            1 => {
                let error = group.recv_object::<String>(None).unwrap_err();
                assert!(error.to_string().contains("the object of rank 0 is not a"), "{error}");
            }
            _ => {}
        }
        assert_eq!(group.all_gather_object(&rank).unwrap(), [0, 1, 2]);
    });
}

#[test]
fn a_pickle_is_not_read() {
    ranks(2, |group| {
        let pickle = Payload { codec: Codec::Pickle, bytes: b"cos\nsystem\n".to_vec() };
        match group.rank() {
            0 => group.send_payload(Ok(pickle), 1).unwrap(),
            _ => {
                let error = group.recv_object::<u32>(Some(0)).unwrap_err();
                assert!(error.to_string().contains("it is a pickle"), "{error}");
            }
        }
    });
}

/// What Python's dataclass `P(x=1, when=date(2026, 1, 2))` is on the wire.
fn python_dataclass() -> Vec<u8> {
    let tag = |number: u64| [&[0xdb][..], &number.to_be_bytes()].concat();
    let text = |text: &str| [&[0x60 | text.len() as u8][..], text.as_bytes()].concat();
    [
        tag((1 << 52) + 5),
        vec![0xa2],
        text("x"),
        vec![1],
        text("when"),
        tag((1 << 52) + 6),
        text("2026-01-02"),
    ]
    .concat()
}

#[test]
fn an_object_of_a_type_of_python_is_a_plain_value() {
    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Appointment {
        x: u32,
        when: String,
    }
    ranks(2, |group| {
        if group.rank() == 0 {
            let payload = Payload { codec: Codec::Cbor, bytes: python_dataclass() };
            group.send_payload(Ok(payload), 1).unwrap();
        } else {
            let (object, _) = group.recv_object::<Appointment>(Some(0)).unwrap();
            assert_eq!(object, Appointment { x: 1, when: "2026-01-02".into() });
        }
    });
}

/// Arrays of every element type.
const ARRAYS: Program = Program { example: "", script: "objects/run" };

#[test]
fn arrays_keep_their_elements_and_shapes_from_language_to_language_and_back() {
    use Language::{Browser, Node, Python};
    let jobs: [&[(Language, u32)]; 6] = [
        &[(Python, 1)],
        &[(Node, 2)],
        &[(Python, 1), (Node, 1)],
        &[(Node, 1), (Python, 2), (Node, 2)],
        &[(Browser, 2)],
        &[(Browser, 1), (Node, 1), (Python, 1)],
    ];
    for parts in jobs {
        every_rank_says(ARRAYS, parts, |_, _| "arrays passed".to_owned());
    }
}
