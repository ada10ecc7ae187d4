"""The Sharing questions: a long prompt among short ones, who goes first, batch work beside interactive work, tenants."""

from planner.ui.components.questions import View
from planner.ui.components.questions_sharing_burst import BURST
from planner.ui.components.questions_sharing_classes import CLASSES
from planner.ui.components.questions_sharing_order import ORDER
from planner.ui.components.questions_sharing_tenants import TENANTS

VIEWS: tuple[View, ...] = (BURST, ORDER, CLASSES, TENANTS)
