//! The protocol's bytes as torch 2.15.0 was seen to send them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

/// Bytes of a hexadecimal text; blanks do not count, `00..` fills the 8-byte length before it up.
fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    (0..digits.len() / 2)
        .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

const HELLO: &str = "00 ce f7 85 3c";

fn decode_all(input: &[u8]) -> Vec<String> {
    let mut decoder = Decoder::default();
    let (mut at, mut requests) = (0, Vec::new());
    while let Decoded::Request { request, used } = decoder.next(&input[at..]).unwrap() {
        at += used;
        requests.push(format!("{request:?}"));
    }
    requests
}

#[test]
fn requests_are_read_as_torch_writes_them() {
    let input = hex(&[
        HELLO,
        "0d e6 55 00 00",
        "01 0200000000000000 2f6b 0200000000000000 7631",
        "06 0100000000000000 0200000000000000 2f6b",
        "03 0200000000000000 2f6b",
        "04 0200000000000000 2f6e f9ffffffffffffff",
        "06 0200000000000000 0300000000000000 2f7a7a 0300000000000000 2f7979",
        "0c",
        "0f 0200000000000000 2f71",
        "12 0200000000000000 2f62 0100000000000000",
        "11",
        "07",
        "0b 0200000000000000 0100000000000000 61 0000000000000000 0100000000000000 62 \
         0100000000000000 63",
        "0b 0000000000000000",
        "10 0000000000000000",
    ]
    .concat());
    let key = |key: &str| key.as_bytes().to_vec();
    let expected = [
        format!("Ping {{ nonce: {:?} }}", [0xe6, 0x55, 0, 0]),
        format!("Set {{ key: {:?}, value: {:?} }}", key("/k"), key("v1")),
        format!("Wait {{ keys: Keys {{ bytes: {:?} }} }}", hex("0200000000000000 2f6b")),
        format!("Get {{ key: {:?} }}", key("/k")),
        format!("Add {{ key: {:?}, amount: -7 }}", key("/n")),
        format!(
            "Wait {{ keys: Keys {{ bytes: {:?} }} }}",
            hex("0300000000000000 2f7a7a 0300000000000000 2f7979")
        ),
        "CancelWait".into(),
        format!("QueuePop {{ key: {:?} }}", key("/q")),
        format!("Barrier {{ key: {:?}, world_size: 1 }}", key("/b")),
        "ListKeys".into(),
        "NumKeys".into(),
        format!("Set {{ key: {:?}, value: [] }}", key("a")),
        format!("Set {{ key: {:?}, value: {:?} }}", key("b"), key("c")),
        "QueueLen { key: [] }".into(),
    ];
    assert_eq!(decode_all(&input), expected);
}

#[test]
fn requests_are_written_as_torch_writes_them() {
    let mut set = Vec::new();
    set.kind(Kind::Set);
    set.blob(&[b"/", b"k"]);
    set.blob(&[b"v1"]);
    assert_eq!(set, hex("01 0200000000000000 2f6b 0200000000000000 7631"));
    let mut wait = Vec::new();
    wait.kind(Kind::Wait);
    wait.keys(b"/", &["zz", "yy"]);
    assert_eq!(wait, hex("06 0200000000000000 0300000000000000 2f7a7a 0300000000000000 2f7979"));
    let mut add = Vec::new();
    add.kind(Kind::Add);
    add.blob(&[b"/", b"n"]);
    add.number(-7);
    assert_eq!(add, hex("04 0200000000000000 2f6e f9ffffffffffffff"));
}

#[test]
fn any_segmentation_gives_the_same_requests_and_never_asks_for_too_much() {
    let input = hex(&[
        HELLO,
        "01 0200000000000000 2f6b 0200000000000000 7631",
        "06 0200000000000000 0300000000000000 2f7a7a 0300000000000000 2f7979",
        "0b 0200000000000000 0100000000000000 61 0000000000000000 0100000000000000 62 \
         0100000000000000 63",
        "0d 01020304",
    ]
    .concat());
    let whole = decode_all(&input);
    assert_eq!(whole.len(), 5);
    let mut decoder = Decoder::default();
    let (mut start, mut requests, mut needed_end) = (0, Vec::new(), 0);
    for end in 0..=input.len() {
        loop {
            match decoder.next(&input[start..end]).unwrap() {
                Decoded::Request { request, used } => {
                    assert!(end >= needed_end, "it had asked for more than it needed");
                    start += used;
                    requests.push(format!("{request:?}"));
                }
                Decoded::Incomplete { used, needed } => {
                    start += used;
                    assert!(start + needed > end, "it asks for what it has");
                    needed_end = start + needed;
                    break;
                }
            }
        }
    }
    assert_eq!(requests, whole);
}

#[test]
fn lengths_are_refused_as_soon_as_they_are_known() {
    let refused = |request: &[u8]| {
        let input = [&hex(HELLO)[..], request].concat();
        let mut decoder = Decoder::default();
        match decoder.next(&input) {
            Err(why) => Some(why),
            Ok(Decoded::Incomplete { .. }) => None,
            Ok(Decoded::Request { request, .. }) => panic!("{request:?}"),
        }
    };
    let with = |kind: u8, number: u64| [&[kind][..], &number.to_le_bytes()].concat();
    assert_eq!(refused(&with(0x03, 8192)), None);
    for bytes in [8193, 1 << 63, u64::MAX] {
        assert_eq!(refused(&with(0x03, bytes)), Some(Malformed::KeyBytes(bytes)));
    }
    let value = |bytes: u64| [&with(0x01, 1)[..], b"k", &bytes.to_le_bytes()].concat();
    assert_eq!(refused(&value(8 << 20)), None);
    assert_eq!(refused(&value((8 << 20) + 1)), Some(Malformed::ValueBytes((8 << 20) + 1)));
    for kind in [0x05, 0x06, 0x0a, 0x0b] {
        assert_eq!(refused(&with(kind, 131_072)), None);
        assert_eq!(refused(&with(kind, 131_073)), Some(Malformed::Keys(131_073)));
    }
    for kind in [0x00, 0x13, 0xff] {
        assert_eq!(refused(&[kind]), Some(Malformed::UnknownKind(kind)));
    }
    let mut many = with(0x06, 131_072);
    for _ in 0..8193 {
        many.blob(&[&[b'k'; 8192]]);
    }
    assert!(matches!(refused(&many), Some(Malformed::KeyListBytes(_))));
}

#[test]
fn nothing_is_read_before_validation() {
    for input in ["01 0100000000000000 6b 0100000000000000 76", "47", "00 00000001", "0d 07000000"]
    {
        let why = Decoder::default().next(&hex(input)).unwrap_err();
        assert_eq!(why, Malformed::NotValidated, "{input}");
    }
    for cut in 0..VALIDATE_BYTES {
        let read = Decoder::default().next(&hex(HELLO)[..cut]).map(|_| ());
        assert_eq!(read, Ok(()), "a correct frame in two pieces is not an offence");
    }
}
