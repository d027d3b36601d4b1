//! WAV files (untrusted bytes), by `hound`.

use crate::error::{Error, Result};
use hound::{SampleFormat, WavReader};
use std::io::Cursor;

/// A sound of one channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Sound {
    /// Samples, mostly from -1 to 1.
    pub samples: Vec<f32>,
    /// Samples per second.
    pub rate: u32,
}

/// Reads the bytes of a WAV file: integers of 8, 16, 24 or 32 bits, or floats; the mean of any number of channels.
///
/// # Errors
/// The bytes are no such file, end early, or have a sample that is no number.
pub fn read_wav(bytes: &[u8]) -> Result<Sound> {
    let wrong = |e: hound::Error| Error(format!("{}; give a WAV file of PCM samples or 32-bit floats", said(&e)));
    let mut reader = WavReader::new(Cursor::new(bytes)).map_err(wrong)?;
    let spec = reader.spec();
    if spec.channels == 0 || spec.sample_rate == 0 {
        let what = format!("the WAV file has {} channels and {} samples per second", spec.channels, spec.sample_rate);
        return Err(Error(what));
    }
    let samples: Vec<f32> = match spec.sample_format {
        SampleFormat::Float => reader.samples::<f32>().collect::<hound::Result<_>>().map_err(wrong)?,
        SampleFormat::Int => {
            let scale = 1.0 / libm::exp2f(f32::from(spec.bits_per_sample.saturating_sub(1)));
            let scaled = reader.samples::<i32>().map(|s| s.map(|s| s as f32 * scale));
            scaled.collect::<hound::Result<_>>().map_err(wrong)?
        }
    };
    let channels = usize::from(spec.channels);
    let mean = |frame: &[f32]| frame.iter().sum::<f32>() / channels as f32;
    let samples = if channels == 1 { samples } else { samples.chunks_exact(channels).map(mean).collect() };
    Ok(Sound { samples, rate: spec.sample_rate })
}

fn said(e: &hound::Error) -> String {
    match e {
        hound::Error::FormatError(what) => format!("not a WAV file that can be read: {what}"),
        hound::Error::Unsupported => "the samples of the WAV file are of a kind that is not read".into(),
        hound::Error::IoError(_) => "the WAV file ends early".into(),
        other => format!("the WAV file: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hound::{WavSpec, WavWriter};

    fn file<S: hound::Sample + Copy>(bits: u16, format: SampleFormat, channels: u16, samples: &[S]) -> Vec<u8> {
        let spec = WavSpec { channels, sample_rate: 8000, bits_per_sample: bits, sample_format: format };
        let mut bytes = Cursor::new(vec![]);
        let mut writer = WavWriter::new(&mut bytes, spec).unwrap();
        samples.iter().for_each(|s| writer.write_sample(*s).unwrap());
        writer.finalize().unwrap();
        bytes.into_inner()
    }

    #[test]
    fn samples_of_all_kinds_are_read() {
        for bits in [8, 16, 24, 32] {
            let least = -(1i64 << (bits - 1)) as i32;
            let sound = read_wav(&file(bits, SampleFormat::Int, 1, &[0, least, least / 2, -(least / 4)])).unwrap();
            assert_eq!(sound, Sound { samples: vec![0.0, -1.0, -0.5, 0.25], rate: 8000 }, "{bits} bits");
        }
        let sound = read_wav(&file(32, SampleFormat::Float, 1, &[0.5f32, -1.5])).unwrap();
        assert_eq!(sound.samples, [0.5, -1.5]);
    }

    #[test]
    fn channels_are_averaged() {
        let sound =
            read_wav(&file(16, SampleFormat::Int, 3, &[0i16, 3 << 8, 6 << 8, 1 << 14, 1 << 14, 1 << 14])).unwrap();
        assert_eq!(sound.samples, [3.0 / 128.0, 0.5]);
    }

    #[test]
    fn other_bytes_are_refused() {
        let whole = file(16, SampleFormat::Int, 1, &[1i16, 2, 3]);
        for (bytes, want) in [
            (&b""[..], "ends early"),
            (b"ID3\x04", "give a WAV file"),
            (b"RIFF\0\0\0\0AVI LIST", "give a WAV file"),
            (&whole[..whole.len() - 1], "give a WAV file"),
        ] {
            let said = read_wav(bytes).unwrap_err().to_string();
            assert!(said.contains(want), "{said}");
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let whole = file(24, SampleFormat::Int, 2, &[1, 2, 3, 4]);
        for at in 0..whole.len() {
            for value in [0, 1, 3, 0x7f, 0xfe, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let _ = read_wav(&bytes);
                let _ = read_wav(&bytes[..at]);
            }
        }
    }
}
