//! The inputs that remove several parts of the packet filter at once: one for each tool, each table in one change.

use super::{nft, tables};
use crate::{FilterPart, Filters};

/// What is to be done about one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is not there.
    Absent,
    /// It goes with the input of this index.
    In(usize),
    /// No input can name it; by itself it is refused with a reason.
    Alone,
}

/// A program's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) program: &'static str,
    pub(super) args: &'static [&'static str],
    pub(super) text: String,
    /// The table that is open at the end of the text.
    table: String,
}

pub(super) const RESTORE_ARGS: &[&str] = &["--noflush", "--wait", "5"];
pub(super) const NFT_ARGS: &[&str] = &["-f", "-"];

impl Input {
    fn of<'a>(
        inputs: &'a mut Vec<Input>,
        program: &'static str,
        args: &'static [&'static str],
    ) -> (usize, &'a mut Input) {
        let at = inputs.iter().position(|input| input.program == program).unwrap_or_else(|| {
            inputs.push(Input { program, args, text: String::new(), table: String::new() });
            inputs.len() - 1
        });
        (at, &mut inputs[at])
    }

    /// Goes on in a table of iptables-restore.
    fn enter(&mut self, table: &str) {
        if self.table != table {
            self.close();
            self.text.extend(["*", table, "\n"]);
            table.clone_into(&mut self.table);
        }
    }

    fn close(&mut self) {
        if !self.table.is_empty() {
            self.text.push_str("COMMIT\n");
            self.table.clear();
        }
    }
}

/// Decides over all parts. `now` is what there is.
pub(super) fn plan(parts: &[FilterPart], now: &Filters) -> (Vec<Fate>, Vec<Input>) {
    let mut inputs = Vec::new();
    let fates = parts.iter().map(|part| one(part, now, &mut inputs)).collect();
    for input in &mut inputs {
        input.close();
    }
    (fates, inputs)
}

fn one(part: &FilterPart, now: &Filters, inputs: &mut Vec<Input>) -> Fate {
    let restored = |inputs: &mut Vec<Input>, table: &str, lines: &str| match tables::Table::of(table) {
        None => Fate::Alone,
        Some(table) => {
            let (at, input) = Input::of(inputs, table.restore, RESTORE_ARGS);
            input.enter(table.name);
            input.text.push_str(lines);
            Fate::In(at)
        }
    };
    let by_nft = |inputs: &mut Vec<Input>, lines: &str| {
        let (at, input) = Input::of(inputs, "nft", NFT_ARGS);
        input.text.push_str(lines);
        Fate::In(at)
    };
    match part {
        FilterPart::Rule { table, rule } => {
            if !now.rules.iter().any(|(t, r)| t == table && r == rule) {
                return Fate::Absent;
            }
            if let Some(words) = nft::delete_rule(table, rule) {
                return by_nft(inputs, &format!("{}\n", words.join(" ")));
            }
            match rule.strip_prefix("-A ").filter(|spec| !spec.contains('\n')) {
                Some(spec) => restored(inputs, table, &format!("-D {spec}\n")),
                None => Fate::Alone,
            }
        }
        FilterPart::Chain { table, chain } => {
            let declared = format!(":{chain} ");
            if !now.rules.iter().any(|(t, rule)| t == table && rule.starts_with(&declared)) {
                return Fate::Absent;
            }
            if super::plain_name(chain).is_err() {
                return Fate::Alone;
            }
            match nft::delete_chain(table, chain) {
                Some(lines) => by_nft(inputs, &lines),
                None => restored(inputs, table, &format!("-F {chain}\n-X {chain}\n")),
            }
        }
        FilterPart::Table { table } => match nft::delete_table(table) {
            Some(line) if now.rules.iter().any(|(t, _)| t == table) => by_nft(inputs, &line),
            Some(_) => Fate::Absent,
            None => match now.tables.iter().find(|known| known.name == *table) {
                None => Fate::Absent,
                Some(known) if !known.idle => Fate::Alone,
                Some(_) => match nft::delete_table(&format!("nft/{table}")) {
                    Some(line) => by_nft(inputs, &line),
                    None => Fate::Alone,
                },
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::Fate::{Absent, Alone, In};
    use super::*;
    use crate::FilterTable;

    fn rule(table: &str, rule: &str) -> FilterPart {
        FilterPart::Rule { table: table.into(), rule: rule.into() }
    }

    fn chain(table: &str, chain: &str) -> FilterPart {
        FilterPart::Chain { table: table.into(), chain: chain.into() }
    }

    fn table(table: &str) -> FilterPart {
        FilterPart::Table { table: table.into() }
    }

    #[test]
    fn each_tool_is_run_once_and_each_table_is_one_change() {
        let lines = [
            ("ip/nat", "-A PREROUTING -j KUBE-A"),
            ("ip/nat", ":KUBE-A -"),
            ("ip/filter", ":KUBE-B -"),
            ("ip6/nat", ":KUBE-A -"),
            ("nft/inet/cni", "-A c handle 7 comment x"),
            ("nft/inet/cni", ":c -"),
            ("nft/ip/kube-proxy", ":services -"),
        ];
        let now = Filters {
            rules: lines.map(|(t, r)| (t.to_owned(), r.to_owned())).to_vec(),
            tables: vec![
                FilterTable { name: "ip/mangle".into(), idle: true },
                FilterTable { name: "ip/raw".into(), idle: false },
            ],
        };
        let parts = [
            rule("ip/nat", "-A PREROUTING -j KUBE-A"),
            rule("ip/nat", "-A GONE -j ACCEPT"),
            rule("nft/inet/cni", "-A c handle 7 comment x"),
            chain("ip/nat", "KUBE-A"),
            chain("ip/filter", "KUBE-B"),
            chain("ip6/nat", "KUBE-A"),
            chain("nft/inet/cni", "c"),
            chain("ip/filter", "KUBE-GONE"),
            table("nft/ip/kube-proxy"),
            table("nft/ip6/kube-proxy"),
            table("ip/mangle"),
            table("ip/raw"),
            table("ip/security"),
        ];
        let (fates, inputs) = plan(&parts, &now);
        assert_eq!(
            fates,
            [In(0), Absent, In(1), In(0), In(0), In(2), In(1), Absent, In(1), Absent, In(1), Alone, Absent]
        );
        let told: Vec<(&str, &str)> = inputs.iter().map(|input| (input.program, input.text.as_str())).collect();
        assert_eq!(
            told,
            [
                (
                    "iptables-restore",
                    "*nat\n-D PREROUTING -j KUBE-A\n-F KUBE-A\n-X KUBE-A\nCOMMIT\n*filter\n-F KUBE-B\n-X KUBE-B\nCOMMIT\n"
                ),
                (
                    "nft",
                    "delete rule inet cni c handle 7\nflush chain inet cni c\ndelete chain inet cni c\n\
                     delete table ip kube-proxy\ndelete table ip mangle\n"
                ),
                ("ip6tables-restore", "*nat\n-F KUBE-A\n-X KUBE-A\nCOMMIT\n"),
            ]
        );
    }
}
