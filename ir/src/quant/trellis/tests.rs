use super::*;
use crate::eval::fixture::{normal, random};
use crate::quant::{Elem, Format, pack_block, unpack_row};
use llmcc_abi::encoding::trellis::{STATE_BITS, trellis_place};

fn both() -> [&'static Search; 2] {
    [&OF_2, &OF_3]
}

/// Squared error of codes in the order of the trellis.
fn error(search: &Search, row: &[f32], codes: &[u8], scale: f32) -> f64 {
    let of = search.of;
    let mut state = 0;
    let one = |(x, code): (&f32, &u8)| {
        state = of.next(state, *code);
        (f64::from(*x) - f64::from(of.level(state)) * f64::from(scale)).powi(2)
    };
    row.iter().zip(codes).map(one).sum()
}

/// `a·b` over GF(2).
fn product(a: usize, b: usize) -> usize {
    (0..usize::BITS / 2).filter(|i| b >> i & 1 == 1).fold(0, |sum, i| sum ^ a << i)
}

#[test]
fn indices_are_bits_of_products_of_polynomials() {
    for t in both().map(Search::trellis) {
        let reversed = t.polynomials.map(|p| (0..STATE_BITS).map(|i| (p >> i & 1) << (STATE_BITS - 1 - i)).sum());
        for state in 0..STATES {
            let half = |p: usize| product(state, p) >> (STATE_BITS - 1) & ((1 << t.bits) - 1);
            assert_eq!(t.index(state), half(reversed[0]) << t.bits | half(reversed[1]), "{state:#x}");
            let bit = |bit: usize| {
                let term =
                    |tap: llmcc_abi::encoding::trellis::Tap| state >> (tap.age * t.bits as usize + tap.plane) & 1;
                t.taps(bit).map(term).iter().fold(0, |x, y| x ^ y) << bit
            };
            assert_eq!(t.index(state), (0..t.index_bits()).map(bit).sum(), "{state:#x}");
        }
    }
}

/// By hand: 1 is bit 0 of the first polynomial alone, 0x480 its other two terms.
#[test]
fn some_states() {
    let [t2, t3] = both().map(Search::trellis);
    let indices = |t: &Trellis, states: &[usize]| states.iter().map(|s| t.index(*s)).collect::<Vec<_>>();
    assert_eq!(indices(t2, &[0, 1, 2, 8, 0x10, 0x480, 0x481]), [0, 4, 8, 1, 2, 1 | 2, 1 | 2 | 4]);
    assert_eq!(indices(t3, &[0, 1, 2, 4, 8, 0x300]), [0, 8, 16, 32, 1, 16]);
}

#[test]
fn places_and_columns_are_inverse() {
    let columns: Vec<usize> = (0..K_PAD).map(trellis_column).collect();
    assert_eq!(columns[..10], [0, 4, 8, 12, 16, 20, 24, 28, 1, 5]);
    assert!((0..K_PAD).all(|k| columns[trellis_place(k)] == k));
}

#[test]
fn codes_are_the_best() {
    for (search, columns) in both().into_iter().zip([5, 3]) {
        let bits = search.of.bits as usize;
        for seed in 0..4 {
            let row = normal(seed, columns);
            let wanted: Vec<Wanted> = row.iter().map(|x| Wanted { value: *x, weight: 1.0 }).collect();
            let codes = search.path(&wanted, &search.scaled(search.unit));
            let found = error(search, &row, &codes, search.unit);
            let all = (0..1usize << (bits * columns)).map(|all| {
                let code = |i: usize| (all >> (bits * i)) as u8 & ((1 << bits) - 1);
                error(search, &row, &(0..columns).map(code).collect::<Vec<_>>(), search.unit)
            });
            let least = all.fold(f64::INFINITY, f64::min);
            assert!(found <= least * (1.0 + 1e-6), "{found}, {least}");
        }
    }
}

/// Root mean square errors of normally distributed weights, packed and read back.
#[test]
fn errors_of_normal_rows() {
    for (def, most) in [(&T2, 0.272), (&T3, 0.14)] {
        let (format, row) = (Format::new(Elem::of(def), 256), normal(9, 4096));
        let mut block = vec![0; format.block_bytes(row.len())];
        pack_block(format, &row, row.len(), &mut block).unwrap();
        let mut back = vec![0f32; row.len()];
        unpack_row(format, &block, row.len(), 0, &mut back);
        let sum = |f: &dyn Fn((&f32, &f32)) -> f32| row.iter().zip(&back).map(|p| f64::from(f(p)).powi(2)).sum::<f64>();
        let found = (sum(&|(x, y)| x - y) / sum(&|(x, _)| *x)).sqrt();
        println!("{}: {found:.4}", def.name);
        assert!(found <= most, "{}: {found}", def.name);
    }
}

/// A row with outliers loses less than with the scale that suits the rest of it.
#[test]
fn outliers_do_not_ruin_a_row() {
    for search in both() {
        let (mut row, ones) = (normal(3, 256), [1.0; 256]);
        row[17] = 20.0;
        let (codes, _) = search.group(&row, &ones);
        let usual = search.codes(&row, &ones, search.unit);
        let [guarded, usual] = [&codes, &usual].map(|codes| search.scale(&row, &ones, codes).1);
        assert!(guarded < 0.9 * usual, "{guarded}, {usual}");
    }
}

/// Fragments have the values of panels.
#[test]
fn codes_by_themselves_have_the_same_values() {
    for search in both() {
        let codes: Vec<u8> = random(5, 256).iter().map(|x| ((x + 1.0) * 4.0) as u8 % (1 << search.of.bits)).collect();
        let e = if search.of.bits == 2 { Encoding::T2 } else { Encoding::T3 };
        let mut levels = vec![0.0; codes.len()];
        e.decode_each(&codes, |c, x| levels[c] = x);
        let each = by_themselves(search.of, &codes);
        assert!(each.iter().zip(&levels).all(|(u, x)| e.by_itself().number(*u) == *x));
    }
}
