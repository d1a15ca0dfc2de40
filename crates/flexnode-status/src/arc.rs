//! Azure Arc, as its own command tells it.

use crate::ArcStatus;

/// Reads what `azcmagent show` prints: lines of `key: value`.
///
/// Connected is an agent status of `connected` in any case, and then the machine is registered too. Of the name, the
/// resource group and the location the first line counts, of the resource ID the last. The agent's version is not told.
pub fn parse_azcmagent_show(text: &str) -> ArcStatus {
    let mut status = ArcStatus::default();
    let first = |slot: &mut String, value: &str| {
        if slot.is_empty() {
            value.clone_into(slot);
        }
    };
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key.trim() {
            "Agent Status" => {
                status.connected = value.eq_ignore_ascii_case("connected");
                status.registered = status.connected;
            }
            "Agent Last Heartbeat" => status.last_heartbeat = value.parse().ok(),
            "Resource Name" => first(&mut status.machine_name, value),
            "Resource Group Name" => first(&mut status.resource_group, value),
            "Location" => first(&mut status.location, value),
            "Resource Id" => value.clone_into(&mut status.resource_id),
            _ => {}
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connected_machine() {
        let text = "Resource Name                           : edge-1\n\
                    Resource Group Name                     : edges\n\
                    Location                                : westeurope\n\
                    Resource Id                             : /subscriptions/0/resourceGroups/edges/edge-1\n\
                    Agent Version                           : 1.50\n\
                    Agent Status                            : Connected\n\
                    Agent Last Heartbeat                    : 2026-11-30T10:00:00Z\n\
                    Location                                : elsewhere\n\
                    no colon here\n";
        let status = parse_azcmagent_show(text);
        assert_eq!((status.registered, status.connected, status.machine_name.as_str()), (true, true, "edge-1"));
        assert_eq!((status.location.as_str(), status.resource_group.as_str()), ("westeurope", "edges"));
        assert_eq!(status.resource_id, "/subscriptions/0/resourceGroups/edges/edge-1");
        assert_eq!(status.last_heartbeat.unwrap().to_string(), "2026-11-30T10:00:00Z");
        assert_eq!(status.agent_version, "");
    }

    #[test]
    fn anything_else_is_not_connected() {
        assert_eq!(parse_azcmagent_show(""), ArcStatus::default());
        let status = parse_azcmagent_show("Agent Status : Disconnected\nAgent Last Heartbeat : never\n");
        assert_eq!(status, ArcStatus::default());
    }
}
