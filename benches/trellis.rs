//! Polynomials and tables of trellis codes: `cargo run --release -p llmcc-benches --bin trellis -- --bits 3`.
//!
//! Tables of levels are trained on normally distributed numbers (Lloyd 1982, "Least squares quantization in PCM"): in
//! turns the best paths for the levels, and the levels of least squared error for the paths. Rounded to 7 bits, they
//! are measured on other numbers. With `--try N`, N pairs of polynomials are drawn and the best ones printed.

use clap::Parser;
use llmcc_abi::encoding::Encoding;
use llmcc_abi::encoding::trellis::{LEVEL_ZERO, Levels, STATES, Trellis};
use llmcc_ir::quant::trellis::{Search, Wanted};

/// Polynomials and tables of trellis codes
#[derive(Parser)]
struct Args {
    /// Bits of a code: 2 or 3.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=3))]
    bits: u32,
    /// Polynomials of the upper and the lower half of an index, in hexadecimal [default: the format's]
    #[arg(long, value_delimiter = ',', value_parser = |text: &str| usize::from_str_radix(text, 16))]
    polynomials: Vec<usize>,
    /// Draw so many pairs of polynomials of three terms instead
    #[arg(long = "try", default_value_t = 0)]
    tries: usize,
    /// Rounds of training
    #[arg(long, default_value_t = 40)]
    rounds: usize,
    /// Numbers of a round
    #[arg(long, default_value_t = 60_000)]
    numbers: usize,
}

/// Pseudo-random numbers (xorshift64).
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normally distributed (Box and Muller 1958).
    fn normal(&mut self) -> f32 {
        let radius = (-2.0 * self.uniform().max(f64::MIN_POSITIVE).ln()).sqrt();
        (radius * (std::f64::consts::TAU * self.uniform()).cos()) as f32
    }

    /// A polynomial of three terms, with the newest bit or not.
    fn polynomial(&mut self, degrees: usize, newest: bool) -> usize {
        let mut out = usize::from(newest);
        while out.count_ones() < 3 {
            out |= 1 << (self.uniform() * degrees as f64) as usize;
        }
        out
    }
}

/// Tables whose entries are added up: for each state, which entry of each.
struct Tables {
    entries: Vec<Vec<f64>>,
    of_state: Vec<Vec<usize>>,
}

impl Tables {
    /// One table by the whole index of 2 bits' codes, two by its halves of 3 bits' codes; ascending.
    fn start(bits: u32, polynomials: [usize; 2]) -> Tables {
        let of = Trellis { bits, polynomials, levels: Levels::Whole([0; 16]) };
        let place = |i: usize, n: usize| (2 * i + 1) as f64 / n as f64 - 1.0;
        let curve = |x: f64| 1.5 * x + 0.5 * x.powi(3);
        if bits == 2 {
            let entries = vec![(0..16).map(|i| curve(place(i, 16))).collect()];
            return Tables { entries, of_state: (0..STATES).map(|s| vec![of.index(s)]).collect() };
        }
        let upper = (0..8).map(|i| curve(place(i, 8))).collect();
        let lower = (0..8).map(|i| 1.2 * place(i, 8)).collect();
        let of_state = (0..STATES).map(|s| vec![of.index(s) >> 3, of.index(s) & 7]).collect();
        Tables { entries: vec![upper, lower], of_state }
    }

    /// By so much an entry's unit is less than the largest level.
    fn unit(&self) -> f64 {
        let largest = |t: &Vec<f64>| t.iter().fold(0f64, |m, x| m.max(x.abs()));
        self.entries.iter().map(largest).sum::<f64>() / f64::from(LEVEL_ZERO - 1)
    }

    fn rounded(&self) -> Vec<Vec<i32>> {
        let unit = self.unit();
        self.entries.iter().map(|t| t.iter().map(|x| (x / unit).round() as i32).collect()).collect()
    }

    /// The level of each state, of entries or of rounded ones.
    fn levels(&self, rounded: bool) -> Vec<f32> {
        let (unit, whole) = (self.unit(), self.rounded());
        let entry = |(table, i): (usize, &usize)| match rounded {
            true => f64::from(whole[table][*i]) * unit,
            false => self.entries[table][*i],
        };
        self.of_state.iter().map(|all| all.iter().enumerate().map(entry).sum::<f64>() as f32).collect()
    }

    /// Entries of least squared error for numbers and their states: by coordinate descent.
    fn fit(&mut self, x: &[f32], path: &[usize]) {
        for table in (0..self.entries.len()).cycle().take(8 * self.entries.len()) {
            let mut sums = vec![(0f64, 0f64); self.entries[table].len()];
            for (x, state) in x.iter().zip(path) {
                let entries = &self.of_state[*state];
                let others = (0..entries.len()).filter(|t| *t != table).map(|t| self.entries[t][entries[t]]);
                let own = &mut sums[entries[table]];
                *own = (own.0 + f64::from(*x) - others.sum::<f64>(), own.1 + 1.0);
            }
            let filled = self.entries[table].iter_mut().zip(sums).filter(|(_, s)| s.1 > 0.0);
            filled.for_each(|(entry, s)| *entry = s.0 / s.1);
        }
    }
}

/// The states of the best path for numbers, and their root mean square error.
fn best(search: &Search, x: &[f32], levels: &[f32]) -> (Vec<usize>, f64) {
    let wanted: Vec<Wanted> = x.iter().map(|value| Wanted { value: *value, weight: 1.0 }).collect();
    let mut state = 0;
    let step = |code: u8| {
        state = search.trellis().next(state, code);
        state
    };
    let path: Vec<usize> = search.path(&wanted, levels).into_iter().map(step).collect();
    let square = |(x, state): (&f32, &usize)| f64::from(x - levels[*state]).powi(2);
    let error = (x.iter().zip(&path).map(square).sum::<f64>() / x.len() as f64).sqrt();
    (path, error)
}

/// Trained tables, and their error as rounded.
fn train(args: &Args, search: &Search, polynomials: [usize; 2]) -> (Tables, f64) {
    let mut tables = Tables::start(args.bits, polynomials);
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut numbers = || (0..args.numbers).map(|_| random.normal()).collect::<Vec<f32>>();
    for _ in 0..args.rounds {
        let x = numbers();
        let (path, _) = best(search, &x, &tables.levels(false));
        tables.fit(&x, &path);
    }
    let error = best(search, &numbers(), &tables.levels(true)).1;
    (tables, error)
}

fn print(polynomials: [usize; 2], tables: &Tables, error: f64) {
    let [upper, lower] = polynomials;
    println!("{upper:#x}, {lower:#x}: {:.2} %, unit {:.5}, {:?}", error * 100.0, tables.unit(), tables.rounded());
}

fn main() {
    let args = Args::parse();
    let encoding = if args.bits == 2 { Encoding::T2 } else { Encoding::T3 };
    let Some(search) = Search::of(&encoding) else { return };
    let own = search.trellis().polynomials;
    let given = args.polynomials.as_chunks().0.first().copied().unwrap_or(own);
    let mut random = Random(1);
    let degrees = 13 - args.bits as usize;
    let drawn = (0..args.tries).map(|_| [random.polynomial(degrees, true), random.polynomial(degrees, false)]);
    let pairs: Vec<[usize; 2]> = if args.tries > 0 { drawn.collect() } else { vec![given] };
    let mut found: Vec<([usize; 2], Tables, f64)> = vec![];
    for pair in pairs {
        let (tables, error) = train(&args, search, pair);
        found.push((pair, tables, error));
        found.sort_by(|a, b| a.2.total_cmp(&b.2));
        found.truncate(8);
    }
    found.iter().for_each(|(pair, tables, error)| print(*pair, tables, *error));
}
