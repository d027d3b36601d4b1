//! The commands of `llmcc chat`.

use crate::advice;

/// A line of a user: a message, or a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Answer this.
    Say(String),
    /// List the commands.
    Help,
    /// Set the system message, or take it away.
    System(Option<String>),
    /// Forget all turns.
    Reset,
    /// Say how long the conversation is, and how fast the last answer was.
    Stats,
    /// Write the conversation to a file.
    Save(String),
    /// Read one.
    Load(String),
    /// Set how tokens are chosen, or list the settings.
    Set(Option<(String, String)>),
    /// Answer the last message anew.
    Retry,
    /// End.
    Quit,
}

/// Commands, with their arguments and meaning.
const COMMANDS: [(&str, &str, &str); 10] = [
    ("/help", "", "list the commands"),
    ("/system", "TEXT", "set the system message; without TEXT, take it away"),
    ("/reset", "", "forget all turns; the system message stays"),
    ("/retry", "", "answer the last message anew, with another seed"),
    ("/set", "NAME VALUE", "set how tokens are chosen, such as temperature 0.7; without arguments, list the settings"),
    ("/stats", "", "length of the conversation, speed of the last answer"),
    ("/save", "FILE", "write the conversation to a file (JSON)"),
    ("/load", "FILE", "go on with the conversation of a file"),
    ("/quit", "", "end, as Ctrl-D does"),
    ("/exit", "", "the same"),
];

/// Beginnings of lines that are commands.
pub(super) const WORDS: [&str; 10] =
    ["/help", "/system", "/reset", "/retry", "/set", "/stats", "/save", "/load", "/quit", "/exit"];

/// The list of commands.
pub(super) fn help() -> String {
    let line = |(name, arguments, meaning): &(&str, &str, &str)| {
        format!("  {:<18} {meaning}\n", format!("{name} {arguments}").trim_end())
    };
    let list: String = COMMANDS.iter().map(line).collect();
    format!(
        "{list}A line goes on after \\ at its end; lines between \"\"\" are one message; a message that begins with / \
         is written with //.\nCtrl-C stops an answer, Ctrl-D ends.\n"
    )
}

impl Order {
    /// Reads a line.
    ///
    /// # Errors
    /// There is no such command, or it wants something else.
    pub(super) fn read(line: &str) -> Result<Order, String> {
        if let Some(rest) = line.strip_prefix("//") {
            return Ok(Order::Say(format!("/{rest}")));
        }
        if !line.starts_with('/') {
            return Ok(Order::Say(line.to_owned()));
        }
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let file = |order: fn(String) -> Order| match rest {
            "" => Err(format!("{word} needs the name of a file")),
            name => Ok(order(name.to_owned())),
        };
        let alone = |order: Order| match rest {
            "" => Ok(order),
            _ => Err(format!("{word} stands alone; a message that begins with / is written with //")),
        };
        match word {
            "/help" | "/?" => alone(Order::Help),
            "/system" => Ok(Order::System((!rest.is_empty()).then(|| rest.to_owned()))),
            "/reset" => alone(Order::Reset),
            "/retry" => alone(Order::Retry),
            "/stats" => alone(Order::Stats),
            "/quit" | "/exit" => alone(Order::Quit),
            "/save" => file(Order::Save),
            "/load" => file(Order::Load),
            "/set" if rest.is_empty() => Ok(Order::Set(None)),
            "/set" => match rest.split_once([' ', '=']) {
                Some((name, value)) => Ok(Order::Set(Some((name.to_owned(), value.trim().to_owned())))),
                None => Err("/set needs a name and a value, such as /set temperature 0.7".into()),
            },
            _ => {
                let meant =
                    advice::nearest(word, WORDS.into_iter()).map_or(String::new(), |w| format!(": did you mean {w}?"));
                Err(format!("there is no command {word}{meant} (/help lists them; // begins a message with /)"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_or_commands() {
        let set = |name: &str, value: &str| Order::Set(Some((name.into(), value.into())));
        for (line, order) in [
            ("hi", Order::Say("hi".into())),
            ("//etc is a folder", Order::Say("/etc is a folder".into())),
            ("/help", Order::Help),
            ("/system be brief\nand kind", Order::System(Some("be brief\nand kind".into()))),
            ("/system", Order::System(None)),
            ("/set", Order::Set(None)),
            ("/set temperature 0.7", set("temperature", "0.7")),
            ("/set top_k=3", set("top_k", "3")),
            ("/save a b.json", Order::Save("a b.json".into())),
            ("/load x", Order::Load("x".into())),
            ("/retry", Order::Retry),
            ("/exit", Order::Quit),
        ] {
            assert_eq!(Order::read(line), Ok(order), "{line}");
        }
        for (line, says) in [
            ("/sytem x", "did you mean /system?"),
            ("/save", "needs the name of a file"),
            ("/set temperature", "a name and a value"),
            ("/reset all", "stands alone"),
            ("/", "there is no command /"),
        ] {
            let found = Order::read(line).unwrap_err();
            assert!(found.contains(says), "{line}: {found}");
        }
        assert!(COMMANDS.iter().zip(WORDS).all(|((name, _, _), word)| *name == word));
        assert!(help().lines().all(|line| line.chars().count() <= 120), "{}", help());
    }
}
