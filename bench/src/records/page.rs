//! The page for a person.

use super::document::Document;
use super::memory::Memory;
use super::micro::Micro;
use super::scaling::Scaling;
use crate::table::{JUDGEMENTS, circumstances, judgement_row};

/// All of it.
#[must_use]
pub fn markdown(document: &Document) -> String {
    let mut lines = vec![
        "# Typed records".to_owned(),
        String::new(),
        "Every reply was checked, those to reads as a whole, and after each run that wrote, records were read again. Server and load generator".to_owned(),
        "have CPUs of their own but where it says otherwise. Records are of the type PersonInfo: name, age, gender, emails.".to_owned(),
        "`make bench-records` repeats it.".to_owned(),
    ];
    match &document.table {
        Some(table) => table.lines(&mut lines),
        None => lines.push("\nThe comparisons were not measured yet.".to_owned()),
    }
    match &document.scaling {
        Some(scaling) => scaling_lines(scaling, &mut lines),
        None => lines.push("\nThroughput by server threads was not measured yet.".to_owned()),
    }
    match &document.memory {
        Some(memory) => memory_lines(memory, &mut lines),
        None => lines.push("\nMemory was not measured yet.".to_owned()),
    }
    match &document.micro {
        Some(micro) => micro_lines(micro, &mut lines),
        None => lines.push("\nPaths and codecs by themselves were not measured yet.".to_owned()),
    }
    lines.join("\n") + "\n"
}

fn listed<'a>(remarks: impl IntoIterator<Item = &'a String>, lines: &mut Vec<String>) {
    let remarks: Vec<String> = remarks.into_iter().map(|remark| format!("- {}", remark.replace('\n', " "))).collect();
    if !remarks.is_empty() {
        lines.push(String::new());
        lines.extend(remarks);
    }
}

fn scaling_lines(scaling: &Scaling, lines: &mut Vec<String>) {
    lines.push("\n## Throughput by server threads\n".to_owned());
    circumstances(&scaling.circumstances, lines);
    lines.push(
        "\n`GET` and `PUT /records/personinfo/{id}`, one of 10,240 records, 128 connections for each server thread, `--durability` `fsync` and \
         `none`. Requests a second; in parentheses what each thread brings over what one brings alone. Where the load generator has fewer CPUs \
         than the server, it may be what is measured; where it has none of its own, it shares the server's last."
            .to_owned(),
    );
    lines.push(JUDGEMENTS.to_owned());
    lines.extend(scaling.judgements.iter().map(judgement_row));
    lines.push(String::new());
    lines.extend(scaling.rows());
    listed(&scaling.problems, lines);
    lines.push("\n![Records: throughput by server threads](plots/records-threads.svg)".to_owned());
}

fn memory_lines(memory: &Memory, lines: &mut Vec<String>) {
    lines.push("\n## Memory\n".to_owned());
    circumstances(&memory.circumstances, lines);
    lines.push(
        "\nResident memory of the process with all records, each its own, put over HTTP, less that of the same process with none, both once they \
         are still. One core; room for all of them in memory."
            .to_owned(),
    );
    lines.push(JUDGEMENTS.to_owned());
    lines.push(judgement_row(&memory.judgement));
    lines.push(format!(
        "\n{} records: {:.0} MiB resident, {:.0} MiB without any.",
        memory.records,
        memory.full_bytes / 1_048_576.0,
        memory.empty_bytes / 1_048_576.0
    ));
    listed(&memory.remarks, lines);
}

fn micro_lines(micro: &Micro, lines: &mut Vec<String>) {
    lines.push("\n## Paths and codecs by themselves\n".to_owned());
    circumstances(&micro.circumstances, lines);
    lines.push(
        "\nOf encoded records, without a server: the examples `path_cost` of `crates/avpath` and `codec_cost` of `crates/avro`. Each figure is \
         the fastest of many runs, and the median of the rounds."
            .to_owned(),
    );
    lines.push(JUDGEMENTS.to_owned());
    lines.extend(micro.judgements.iter().map(judgement_row));
    lines.push(String::new());
    lines.extend(micro.rows());
    listed(&micro.problems, lines);
}
