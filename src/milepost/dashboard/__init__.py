"""The dashboard: one site or several on a live map, from their logs only.

    log of a site                          shown on the map                    file
    ──────────────────────────────────────────────────────────────────────────────────────────────
    reserved.subscription-info             edges, coverage, the central hub    `records`, `scene`
    reports                                vehicles, rates, roaming            `records`, `vehicles`
    reserved.publish-pipelines             hazards, alerts and their areas     `records`, `tables`, `alerts`
    deliveries                             warned endpoints, and when          `records`, `alerts`
    incidents.state                        incidents                           `records`, `scene`
    (the status file of the pipelines)     rates of Spark                      `scene`

    log ─▶ `feed` ─▶ `records`: record to fact ─▶ `scene`: the current state ─▶ every 0.2 s a diff ─▶ `server`: frames
                                                       │                                                  │
                                                       └─▶ `history`: whole scenes of the last minutes       ▼
    browser ◀── WebSocket ◀── `server`: diffs, or a whole scene for a new or slow viewer ◀────────────────┘
       └──── hazard to publish, with the token ─▶ `publisher` ─▶ log

Invariants: a scene and all later diffs produce the current scene; every buffer has a limit; a slow viewer loses diffs and gets a
whole scene, and delays no other.
"""
