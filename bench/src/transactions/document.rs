//! Everything that was measured, in one file; each part may be measured again by itself.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::plot::{Axes, Line, Panel, draw};
use crate::table::{Circumstances, Table};
use crate::transactions::matrix::{CONFIGURATIONS, MatrixCell, Point};
use crate::transactions::page;

/// The matrix.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Matrix {
    /// Of its run.
    pub circumstances: Circumstances,
    /// By example, then by configuration.
    pub cells: Vec<MatrixCell>,
}

/// Both.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Document {
    /// The comparisons, if they were measured.
    pub table: Option<Table>,
    /// The matrix, if it was measured.
    pub matrix: Option<Matrix>,
}

const NAME: &str = "transactions";

impl Document {
    /// What was published before; nothing if that cannot be read.
    #[must_use]
    pub fn published(folder: &Path) -> Self {
        let text = std::fs::read_to_string(folder.join(format!("{NAME}.json"))).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Writes the page, the data and the plots.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn write(&self, folder: &Path) -> Outcome<()> {
        let failed = |error: std::io::Error| format!("cannot write results to {}: {error}", folder.display());
        let plots = folder.join("plots");
        std::fs::create_dir_all(&plots).map_err(failed)?;
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        let write = |name: String, text: String| std::fs::write(folder.join(name), text).map_err(failed);
        write(format!("{NAME}.json"), json + "\n")?;
        write(format!("{NAME}.md"), page::markdown(self))?;
        if let Some(matrix) = &self.matrix {
            write(format!("{NAME}.csv"), matrix.csv())?;
            for app in matrix.apps() {
                write(format!("plots/{NAME}-{app}.svg"), matrix.plot(app))?;
            }
        }
        Ok(())
    }
}

impl Matrix {
    /// The examples, in the order they were measured.
    #[must_use]
    pub fn apps(&self) -> Vec<&str> {
        let mut apps: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if !apps.contains(&cell.app.as_str()) {
                apps.push(&cell.app);
            }
        }
        apps
    }

    /// One example in one configuration.
    #[must_use]
    pub fn cell(&self, app: &str, configuration: &str) -> Option<&MatrixCell> {
        self.cells.iter().find(|cell| cell.app == app && cell.configuration == configuration)
    }

    /// One line for each rate.
    #[must_use]
    pub fn csv(&self) -> String {
        let head = "app,configuration,share_of_capacity,offered_per_s,achieved_per_s,shed_per_s,errors,p50_us,p99_us,\
                    p99_9_us,server_cpu_us_per_request,fsync_us\n";
        let row = |point: &Point| {
            let Point { app, configuration, share, offered, achieved, .. } = point;
            let Point { shed, errors, p50_us, p99_us, p99_9_us, cpu_us, fsync_us, .. } = point;
            format!(
                "{app},{configuration},{share},{offered:.0},{achieved:.0},{shed:.0},{errors},{p50_us},{p99_us},{p99_9_us},\
                 {cpu_us},{fsync_us:.0}\n"
            )
        };
        head.to_owned() + &self.cells.iter().flat_map(|cell| &cell.points).map(row).collect::<String>()
    }

    fn plot(&self, app: &str) -> String {
        let line = |configuration: &str, latency: fn(&Point) -> f64| {
            let points = self.cell(app, configuration).into_iter().flat_map(|cell| &cell.points);
            let points = points.map(|point| (point.achieved, latency(point))).collect();
            Line { name: configuration.to_owned(), points }
        };
        let panel = |title: &str, latency: fn(&Point) -> f64| Panel {
            title: format!("{app}: {title}"),
            axes: Axes::RateLatency,
            lines: CONFIGURATIONS.iter().map(|one| line(one.name, latency)).collect(),
        };
        let panels = [panel("median latency", |point| point.p50_us), panel("99th percentile", |point| point.p99_us)];
        draw(&format!("{app}: latency against throughput"), &panels)
    }
}
