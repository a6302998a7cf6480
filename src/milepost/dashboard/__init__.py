"""The dashboard: a site, or several, on a live map; a reader of their logs, and of nothing else.

    log of a site                          what the map shows of it            file
    ──────────────────────────────────────────────────────────────────────────────────────────────
    reserved.subscription-info             edges, their coverage, the centre   `reading`, `scene`
    reports                                vehicles, rates, roaming            `reading`, `vehicles`
    reserved.publish-pipelines             hazards, alerts and their areas     `reading`, `hazards`, `alerts`
    deliveries                             who was warned, and when            `reading`, `alerts`
    incidents.state                        incidents                           `reading`, `scene`
    (the file that pipelines write)        rates of Spark                      `scene`

    log ─▶ `feed` ─▶ `reading`: record to fact ─▶ `scene`: all that is known now ─▶ every 0.2 s a diff ─▶ `frames`: bytes
                                                       │                                                      │
                                                       └─▶ `past`: whole scenes of the last minutes           ▼
    browser ◀── WebSocket ◀── `viewers`: diffs, or a whole scene for who is new or slow ◀─────────────────────┘
       └──── hazard to publish, with the token ─▶ `publishing` ─▶ log

What must hold: a scene and all diffs since make the scene of now; every buffer has a limit; whoever reads too slowly loses diffs
and gets a whole scene, and nobody waits for anybody.
"""
