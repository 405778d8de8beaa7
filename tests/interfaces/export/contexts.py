"""The JSON-LD contexts that a crate refers to, as far as ours use them: no test needs the web.

Which term stands for what is a matter of RO-Crate 1.1 (https://w3id.org/ro/crate/1.1/context) and
of the terms for workflow runs (https://w3id.org/ro/terms/workflow-run/context). A term that is not
listed here is unknown to the checker, as one would be that is in neither.
"""

from __future__ import annotations

from typing import Any

SCHEMA = "http://schema.org/"
BIOSCHEMAS = "https://bioschemas.org/"
RUN = "https://w3id.org/ro/terms/workflow-run#"
OF_SCHEMA = """
ControlAction CreateAction CreativeWork ComputerLanguage Dataset HowTo HowToStep OrganizeAction
Person PropertyValue SoftwareApplication SoftwareSourceCode about actionStatus additionalProperty
additionalType agent author datePublished description encodingFormat endTime error exampleOfWork
hasPart instrument license mainEntity mentions name object position programmingLanguage propertyID
result softwareVersion startTime step unitCode url value version workExample
"""
CRATE: dict[str, str] = {term: f"{SCHEMA}{term}" for term in OF_SCHEMA.split()} | {
    "File": f"{SCHEMA}MediaObject",
    "ComputationalWorkflow": f"{BIOSCHEMAS}ComputationalWorkflow",
    "FormalParameter": f"{BIOSCHEMAS}FormalParameter",
    "input": f"{BIOSCHEMAS}ComputationalWorkflow#input",
    "output": f"{BIOSCHEMAS}ComputationalWorkflow#output",
    "conformsTo": "http://purl.org/dc/terms/conformsTo",
}
CONTEXTS: dict[str, Any] = {
    "https://w3id.org/ro/crate/1.1/context": {"@context": CRATE},
    "https://w3id.org/ro/terms/workflow-run/context": {
        "@context": {"resourceUsage": f"{RUN}resourceUsage"}
    },
}
