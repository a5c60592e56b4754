//! Schedules as fronts see them: what the catalog declares, and when the shard of each says that it is due.
//!
//! A catalog computes the same next time as a shard, but for those that are overdue: on a shard that cannot
//! write, or after the clock was set back. So the shards are asked, those of one page only.
//!
//! Whoever may not call a service is told the same of its schedules as if there were none.

use std::collections::BTreeMap;

use millrace_api::{Page, Principal, Schedule, SchedulesRequest, Target};
use millrace_base::{Error, ErrorCode, Name, ShardId, shard_of_key};
use millrace_driver::question::ListSchedules;
use millrace_func::{Catalog, Service};
use millrace_shard::AskedSchedule;

use crate::backend::{CoreHandle, catalog};
use crate::invocations::may_see;

/// A page's place: app, service and name of the schedule that came last. Names hold no dot.
type ScheduleCursor<'a> = (&'a str, &'a str, &'a str);

fn parse_place(text: &str) -> Result<ScheduleCursor<'_>, Error> {
    let mut parts = text.split('.').filter(|part| Name::is_valid(part));
    match (parts.next(), parts.next(), parts.next(), text.split('.').count()) {
        (Some(app), Some(service), Some(name), 3) => Ok((app, service, name)),
        _ => Err(Error::new(ErrorCode::BadRequest, "`after` is not what an earlier page gave as `next`")),
    }
}

fn place_of(schedule: &Schedule) -> String {
    let Target { app, service, .. } = &schedule.target;
    format!("{app}.{service}.{}", schedule.name)
}

/// What `GET /schedules` answers: by app, service and name.
pub(crate) async fn list(
    node: &CoreHandle,
    principal: &Principal,
    request: SchedulesRequest<'_>,
) -> Result<Page<Schedule>, Error> {
    let limit = request.limit.max(1);
    let place = request.after.map(parse_place).transpose()?;
    let mut items = declared(catalog(&node.core().borrow())?, principal, &request, (place, limit + 1));
    let has_more = items.len() > limit;
    items.truncate(limit);
    ask_when_due(node, &mut items).await?;
    let next = items.last().filter(|_| has_more).map(place_of);
    Ok(Page { items, next })
}

/// The schedules behind a place that the principal may see: `enough` of them, and perhaps some more.
fn declared(
    catalog: &Catalog,
    principal: &Principal,
    request: &SchedulesRequest<'_>,
    (place, enough): (Option<ScheduleCursor<'_>>, usize),
) -> Vec<Schedule> {
    let is_wanted = |app: &str, service: &str| {
        request.app.is_none_or(|wanted| app == wanted)
            && request.service.is_none_or(|wanted| service == wanted)
            && place.is_none_or(|(last_app, last_service, _)| (app, service) >= (last_app, last_service))
            && may_see(principal, app, service)
    };
    let mut found = Vec::new();
    for loaded in catalog.apps().filter_map(|(_, program)| catalog.program(program)) {
        let app = loaded.app.as_str();
        let mut services: Vec<&Service> =
            loaded.services.iter().filter(|service| is_wanted(app, service.name.as_str())).collect();
        services.sort_by(|one, other| one.name.cmp(&other.name));
        for service in services {
            found.extend(of_service(app, service, place));
            if found.len() >= enough {
                return found;
            }
        }
    }
    found
}

/// The schedules of one service behind a place, in the order of their names.
fn of_service(app: &str, service: &Service, place: Option<ScheduleCursor<'_>>) -> Vec<Schedule> {
    let service_name = service.name.as_str();
    let is_behind = |name: &str| place.is_none_or(|place| (app, service_name, name) > place);
    let behind = service.schedules.iter().filter(|schedule| is_behind(schedule.name.as_str()));
    let mut found: Vec<Schedule> = behind
        .map(|schedule| Schedule {
            name: schedule.name.to_string(),
            target: Target {
                app: app.to_owned(),
                service: service_name.to_owned(),
                key: schedule.key.clone(),
                handler: schedule.handler.to_string(),
            },
            cron: schedule.cron.clone(),
            due_ms: None,
        })
        .collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// Asks each shard once about those of the schedules that are its own.
async fn ask_when_due(node: &CoreHandle, items: &mut [Schedule]) -> Result<(), Error> {
    let mut by_shard: BTreeMap<ShardId, Vec<&mut Schedule>> = BTreeMap::new();
    for item in items {
        let shard = shard_of_key(&item.target.key, node.shard_count());
        by_shard.entry(shard).or_default().push(item);
    }
    for (shard, mut items) in by_shard {
        let asked: Vec<AskedSchedule> = items
            .iter()
            .map(|item| AskedSchedule {
                app: item.target.app.clone(),
                service: item.target.service.clone(),
                name: item.name.clone(),
                cron: item.cron.clone(),
            })
            .collect();
        let due = node.ask(shard, ListSchedules { asked }).await?;
        for (item, due) in items.iter_mut().zip(due) {
            item.due_ms = due.map(|due| due.0);
        }
        // Other requests have their turn between two shards.
        tokio::task::yield_now().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_what_a_page_gave_and_nothing_else() {
        let target =
            Target { app: "shop".into(), service: "mail".into(), key: b"k".to_vec(), handler: "deliver".into() };
        let last = Schedule { name: "nightly".into(), target, cron: "@daily".into(), due_ms: None };
        assert_eq!(parse_place(&place_of(&last)).ok(), Some(("shop", "mail", "nightly")));
        for wrong in ["", "a", "a.b", "a.b.", ".a.b", "a.b.c.d", "a..b.c", "a.b.1", "a.b.c/d", "ä.b.c"] {
            assert_eq!(parse_place(wrong).map_err(|error| error.code), Err(ErrorCode::BadRequest), "{wrong}");
        }
    }
}
