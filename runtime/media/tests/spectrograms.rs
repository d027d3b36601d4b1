//! Spectrograms and resampled sounds, against Transformers' feature extractor and torchaudio:
//! `tests/goldens/spectrograms.py` makes the same sounds.

use llmcc_media::audio::{Spectrogram, resampled};
use safetensors::SafeTensors;
use std::path::Path;

const RATE: usize = 16000;
const AT: [usize; 7] = [0, 1, 2, 37, 50, 98, 99];

fn noise(n: usize, seed: u64) -> Vec<i64> {
    let number = |i: u64| {
        let z = seed.wrapping_add(i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ z >> 31) >> 48) as i64 - 32768
    };
    (1..=n as u64).map(number).collect()
}

fn sine(n: usize, factor: i64) -> Vec<i64> {
    let (mut before, mut now) = (0, 1 << 12);
    let next = |_| {
        let out = now;
        (before, now) = (now, ((factor * now) >> 14) - before);
        out.clamp(-32768, 32767)
    };
    (0..n).map(next).collect()
}

fn sounds() -> Vec<(&'static str, Vec<i64>)> {
    let shifted = |x: Vec<i64>, by: u32| x.into_iter().map(|x| x >> by).collect();
    // As Python divides: towards lower numbers.
    let both = noise(RATE, 4).iter().zip(sine(RATE, 30000)).map(|(a, b)| a.div_euclid(4) + b.div_euclid(4)).collect();
    vec![
        ("silence", vec![0; RATE]),
        ("noise", noise(RATE, 1)),
        ("quiet", shifted(noise(RATE, 2), 9)),
        ("low", sine(RATE, 32000)),
        ("high", sine(RATE, -20000)),
        ("short", shifted(noise(RATE / 3 + 7, 3), 2)),
        ("both", both),
    ]
}

fn samples(sound: &[i64]) -> Vec<f32> {
    sound.iter().map(|x| *x as f32 / 32768.0).collect()
}

fn spectrogram(mels: usize, seconds: usize) -> Spectrogram {
    Spectrogram { mels, rate: RATE as u32, fft: 400, hop: 160, samples: seconds * RATE }
}

struct Goldens(Vec<u8>);

impl Goldens {
    fn read() -> Goldens {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/spectrograms.safetensors");
        Goldens(std::fs::read(path).expect("the goldens"))
    }

    fn of(&self, name: &str) -> Vec<f32> {
        let file = SafeTensors::deserialize(&self.0).expect("safetensors");
        let bytes = file.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}")).data().to_vec();
        bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }
}

/// The reference has sums in f64 and rounds spectra and results to f32.
fn compare(goldens: &Goldens, name: &str, got: &[f32]) {
    let want = goldens.of(name);
    assert_eq!(got.len(), want.len(), "{name}");
    let worst = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= 2.5e-7, "{name}: off by {worst:e}");
}

#[test]
fn frames_are_those_of_the_feature_extractor() {
    let goldens = Goldens::read();
    for (name, sound) in sounds() {
        for mels in [80, 128] {
            let frames = spectrogram(mels, 1).frames_of(&samples(&sound)).expect("frames");
            assert_eq!(frames.len(), 100 * mels);
            let at: Vec<f32> = AT.iter().flat_map(|i| &frames[i * mels..(i + 1) * mels]).copied().collect();
            compare(&goldens, &format!("{name}.{mels}"), &at);
        }
    }
    let frames = spectrogram(80, 30).frames_of(&samples(&noise(30 * RATE, 5))).expect("frames");
    let at: Vec<f32> = [0, 1500, 2999].iter().flat_map(|i| &frames[i * 80..(i + 1) * 80]).copied().collect();
    compare(&goldens, "long.80", &at);
}

#[test]
fn rows_have_five_frames() {
    let (s, sound) = (spectrogram(80, 1), samples(&noise(RATE / 2, 8)));
    let (frames, rows) = (s.frames_of(&sound).expect("frames"), s.rows_of(&sound).expect("rows"));
    assert_eq!(rows.len(), s.rows() * s.columns());
    for (i, row) in rows.chunks_exact(s.columns()).enumerate() {
        for (j, part) in row.chunks_exact(80).enumerate() {
            let want = match (2 * i + j).checked_sub(2).filter(|at| *at < 100) {
                Some(at) => frames[at * 80..(at + 1) * 80].to_vec(),
                None => vec![0.0; 80],
            };
            assert_eq!(part, want, "row {i}, frame {j}");
        }
    }
}

#[test]
fn sounds_of_other_rates_are_those_of_torchaudio() {
    let goldens = Goldens::read();
    for rate in [8000, 11025, 22050, 44100, 48000, 16001] {
        let own = resampled(&samples(&noise(rate / 4, 6)), rate as u32, RATE as u32).expect("samples");
        assert_eq!(own.len(), (rate / 4 * RATE).div_ceil(rate), "{rate}");
        let want = goldens.of(&format!("rate.{rate}"));
        let worst = own.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(want.len() == 2000 && worst <= 1.5e-7, "{rate}: off by {worst:e}");
    }
}

#[test]
fn what_is_no_sound_is_refused() {
    let s = spectrogram(80, 1);
    let said = |x: &[f32]| s.rows_of(x).expect_err("refused").to_string();
    assert!(said(&vec![0.0; RATE + 1]).contains("at most 16000 samples"));
    assert!(said(&[0.0, f32::NAN]).contains("sample 1 of the sound is NaN"));
    assert!(said(&[f32::INFINITY]).contains("sample 0 of the sound is inf"));
    assert!(s.rows_of(&[]).is_ok(), "silence");
    assert!(resampled(&[0.0], 999, 16000).is_err() && resampled(&[0.0], 800_000, 16000).is_err());
    for wrong in [(0, 400, 160, 16000), (80, 400, 0, 16000), (80, 16000, 160, 16000), (80, 400, 160, usize::MAX)] {
        let (mels, fft, hop, samples) = wrong;
        assert!(Spectrogram { mels, rate: 16000, fft, hop, samples }.check().is_err(), "{wrong:?}");
    }
    assert!(s.check().is_ok());
}
