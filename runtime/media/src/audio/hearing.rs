//! The description of a model that hears, as its artifact has it, and the tokens that its texts begin with.

use super::Spectrogram;
use crate::error::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A model that writes what is said in clips of sound.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hearing {
    /// The spectrograms that its encoder reads.
    pub spectrogram: Spectrogram,
    /// How its texts begin.
    pub transcription: Transcription,
}

/// The tokens that a text about a clip begins with: `start`, the language and the task where the model knows several,
/// and that there are no timestamps.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transcription {
    /// The first token.
    pub start: i32,
    /// Tokens after it, of a model that knows one language.
    #[serde(default)]
    pub forced: Vec<i32>,
    /// Tokens of languages by their codes; none of a model that knows one.
    #[serde(default)]
    pub languages: BTreeMap<String, i32>,
    /// Tokens of tasks by their names.
    #[serde(default)]
    pub tasks: BTreeMap<String, i32>,
    /// The token that says that no timestamps follow.
    pub no_timestamps: Option<i32>,
}

/// The text configuration of an artifact, but for what this crate does not read.
#[derive(Deserialize)]
struct Configuration {
    media: Option<Media>,
}

#[derive(Deserialize)]
struct Media {
    audio: Option<Hearing>,
}

/// The task where none is asked for.
const USUAL: &str = "transcribe";

impl Hearing {
    /// Reads the text configuration of an artifact; `None`: its model does not hear.
    ///
    /// # Errors
    /// It is not the JSON that the compiler writes.
    pub fn parse(configuration: &str) -> Result<Option<Hearing>> {
        if configuration.is_empty() {
            return Ok(None);
        }
        let read: Configuration = serde_json::from_str(configuration)
            .map_err(|e| Error(format!("the artifact's description of sounds is damaged ({e}); compile it again")))?;
        let hearing = read.media.and_then(|media| media.audio);
        hearing.as_ref().map_or(Ok(()), |h| h.spectrogram.check())?;
        Ok(hearing)
    }
}

impl Transcription {
    /// The token of a language, by its code (`en`) or token (`<|en|>`); none where the model knows one language.
    ///
    /// # Errors
    /// The model does not know it.
    pub fn language(&self, name: &str) -> Result<i32> {
        let lower = name.to_lowercase();
        let code = lower.strip_prefix("<|").and_then(|rest| rest.strip_suffix("|>")).unwrap_or(&lower);
        let unknown = || match self.languages.is_empty() {
            true => Error("this model knows one language alone: leave the language out".into()),
            false => {
                let known: Vec<&str> = self.languages.keys().map(String::as_str).collect();
                Error(format!("the model does not know the language `{name}`; it knows {}", known.join(", ")))
            }
        };
        self.languages.get(code).copied().ok_or_else(unknown)
    }

    /// The code of a language by its token.
    pub fn code(&self, token: i32) -> Option<&str> {
        self.languages.iter().find(|(_, id)| **id == token).map(|(code, _)| code.as_str())
    }

    /// The first tokens of a text of a task (`None`: a transcription), in the language `language`, which is none where
    /// the model knows one alone.
    ///
    /// # Errors
    /// The model does not know the task.
    pub fn prompt(&self, language: Option<i32>, task: Option<&str>) -> Result<Vec<i32>> {
        let task = task.unwrap_or(USUAL);
        let token = match self.tasks.get(task) {
            Some(token) => Some(*token),
            None if self.tasks.is_empty() && task == USUAL => None,
            None if self.tasks.is_empty() => return Err(Error("this model has one task: `transcribe`".into())),
            None => {
                let known: Vec<&str> = self.tasks.keys().map(String::as_str).collect();
                return Err(Error(format!("the model has no task `{task}`; it has {}", known.join(", "))));
            }
        };
        let forced = self.forced.iter().map(|token| Some(*token));
        let all = std::iter::once(Some(self.start)).chain(forced).chain([language, token, self.no_timestamps]);
        Ok(all.flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECTROGRAM: &str = r#""spectrogram":{"mels":80,"rate":16000,"fft":400,"hop":160,"samples":480000}"#;

    fn of(transcription: &str) -> Hearing {
        let text = format!(r#"{{"eos":1,"media":{{"audio":{{{SPECTROGRAM},"transcription":{transcription}}}}}}}"#);
        Hearing::parse(&text).unwrap().unwrap()
    }

    #[test]
    fn texts_begin_with_language_and_task() {
        let many =
            r#"{"start":1,"languages":{"en":2,"de":3},"tasks":{"transcribe":4,"translate":5},"no_timestamps":6}"#;
        let t = of(many).transcription;
        assert_eq!(t.prompt(Some(3), None).unwrap(), [1, 3, 4, 6]);
        assert_eq!(t.prompt(Some(2), Some("translate")).unwrap(), [1, 2, 5, 6]);
        assert_eq!([t.language("DE"), t.language("<|en|>")], [Ok(3), Ok(2)]);
        assert_eq!((t.code(3), t.code(9)), (Some("de"), None));
        assert!(t.language("xx").unwrap_err().0.contains("it knows de, en"));
        assert!(t.prompt(None, Some("sing")).unwrap_err().0.contains("it has transcribe, translate"));
    }

    #[test]
    fn models_of_one_language_have_neither() {
        let t = of(r#"{"start":1,"no_timestamps":6}"#).transcription;
        assert_eq!(t.prompt(None, Some("transcribe")).unwrap(), [1, 6]);
        assert_eq!(of(r#"{"start":1,"forced":[6,7]}"#).transcription.prompt(None, None).unwrap(), [1, 6, 7]);
        assert!(t.language("en").unwrap_err().0.contains("one language"));
        assert!(t.prompt(None, Some("translate")).unwrap_err().0.contains("one task"));
    }

    #[test]
    fn descriptions_are_checked() {
        assert_eq!(Hearing::parse("").unwrap(), None);
        assert_eq!(Hearing::parse(r#"{"media":{"image":{}}}"#).unwrap(), None);
        assert_eq!(Hearing::parse("{}").unwrap(), None);
        for wrong in ["[", r#"{"media":{"audio":{}}}"#, r#"{"media":{"audio":{"spectrogram":{"mels":-1}}}}"#] {
            assert!(Hearing::parse(wrong).unwrap_err().0.contains("damaged"), "{wrong}");
        }
        let large = SPECTROGRAM.replace("480000", "99999999999");
        let text = format!(r#"{{"media":{{"audio":{{{large},"transcription":{{"start":1}}}}}}}}"#);
        assert!(Hearing::parse(&text).is_err());
    }
}
