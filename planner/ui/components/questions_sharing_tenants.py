"""The view on tenants that share an engine."""

from collections.abc import Sequence

from planner.analysis.case import Case
from planner.analysis.fairness import Request, request_fair_shares, token_weights
from planner.analysis.fairness_simulated import COUNTER, SimulatedTenants, Tenants, service_bound_s, simulated_tenants
from planner.ui import reading
from planner.ui.charts.curves import Axis, curves
from planner.ui.charts.sharing import dots, parts
from planner.ui.components.common import show, side_by_side
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_sharing_tenants as words
from planner.ui.views.question_inputs import Asked, Input


def _inputs(case: Case) -> Sequence[Input]:
    first, second = words.default_requests(case)
    most = float(min(case.kv_tokens, case.limits.max_model_len or case.kv_tokens))
    return (
        Input("dprompt", "Documents: prompt tokens", f"{first.prompt_tokens:g}", reading.whole, low=1, high=most),
        Input("doutput", "Documents: output tokens", f"{first.output_tokens:g}", reading.whole, low=1, high=most),
        Input("cprompt", "Chat: prompt tokens", f"{second.prompt_tokens:g}", reading.whole, low=1, high=most),
        Input("coutput", "Chat: output tokens", f"{second.output_tokens:g}", reading.whole, low=1, high=most),
        Input("does", "What they do", next(iter(words.BEHAVIOURS)), choices=words.BEHAVIOURS),
        Input(
            "owed", "Chat's share to documents'", "1", low=0.01, high=100.0, help="3 owes chat three times what documents are owed"
        ),
    )


def _draw(case: Case, asked: Asked) -> None:
    requests = (
        Request(asked.number("dprompt"), asked.number("doutput")),
        Request(asked.number("cprompt"), asked.number("coutput")),
    )
    tenants = Tenants(requests, (1.0, asked.number("owed")), asked.values["does"])
    decoders = words.decoders_of(case)
    weights = token_weights(decoders, case.coefficients)
    closed = request_fair_shares(requests, decoders, case.coefficients)
    say(closed.explanation)

    def work(tell: Tell) -> SimulatedTenants:
        return simulated_tenants(case, tenants, weights, tell)

    found = simulated("tenants", case, asked, work)
    if found is not None:
        _charts(tenants, found)
    bound_s = service_bound_s(case, tenants, weights)
    beside(words.tenant_rows(closed, bound_s, tenants, found), "Shares by formula and simulated")
    notes = words.tenant_notes(case, found)
    why((weights.explanation.formula, closed.explanation.formula), notes)
    setting(words.tenant_setting(weights), words.tenant_code(weights, tenants), "python")


def _charts(tenants: Tenants, found: SimulatedTenants) -> None:
    title = words.share_title(tenants, found)
    chart = parts(title, "Share of the service (%)", words.share_parts(found), words.share_rule(tenants))
    show(chart, "chart-q-tenants-shares")
    axes = (Axis("Time (s)", log=False), Axis("Service so far (GPU s)", log=False))
    for column, name in zip(side_by_side(), (words.compared(tenants), COUNTER), strict=True):
        with column:
            run = found.run(name)
            drawn = words.service_curves(run)
            show(curves(words.service_title(run), axes, drawn, words.service_rules(tenants, found)), f"chart-q-tenants-{name}")
    if tenants.behaviour == "first floods":
        show(dots(words.wait_title(found), "Longest wait (s)", words.wait_dots(found)), "chart-q-tenants-waits")


TENANTS = View("tenants", "Fair to tenants?", _inputs, _draw)
