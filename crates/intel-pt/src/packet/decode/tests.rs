use proptest::prelude::*;

use super::*;

/// Bytes of which many begin a TIP or a CYC.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let some = prop_oneof![
        any::<[u8; 1]>().prop_map(Vec::from),
        Just(vec![0x2d]),
        Just(vec![0x4d]),
        Just(vec![0x6d]),
        Just(vec![0x0f, 2, 0xf3]),
    ];
    prop::collection::vec(some, 0..80).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn frequent_packets_are_read_as_any(
        bytes in bytes(),
        errata in prop_oneof![Just(Errata::NONE), Just(Errata::from(&[Erratum::Skd007][..]))],
    ) {
        let mut one = Decoder::new(&bytes, 0).with_errata(errata);
        let (mut other, mut all) = (one.clone(), one.clone());
        let (mut one_by_one, mut at_once) = (Vec::new(), Vec::new());
        while one.position() < bytes.len() {
            let packet = one.next_packet();
            prop_assert_eq!(&packet, &other.any_packet());
            one_by_one.extend(packet.ok().flatten());
            if packet.is_err() {
                one.position += 1;
                other.position += 1;
            }
            prop_assert_eq!((one.position, one.open_block), (other.position, other.open_block));
        }
        while all.for_each(|packet| at_once.push(packet)).is_err() {
            all.position += 1;
        }
        prop_assert_eq!(one_by_one, at_once);
    }

    #[test]
    fn packets_before_a_psb_are_read_as_any_unless_it_cuts_them(bytes in bytes(), psb in 0usize..100) {
        let mut any = Decoder::new(&bytes, 0);
        while any.position < bytes.len() {
            let (at, mut before) = (any.position, any.clone());
            let (found, expected) = (before.next_before(psb), any.any_packet());
            if at < psb && psb < any.position {
                prop_assert_eq!(found.map_err(|error| error.kind), Err(ErrorKind::CutByPsb((any.position - at) as u8)));
                prop_assert_eq!(before.position, at);
            } else {
                prop_assert_eq!(&found, &expected);
                prop_assert_eq!(before.position, any.position);
            }
            any.position += usize::from(expected.is_err());
        }
    }
}
