#!/usr/bin/env -S cwltool --enable-ext
# Runs any qtide program. Each turn of the loop replays the program from its journal until it waits
# for phases, and runs these. What differs from program to program is in inputs.yml.
cwlVersion: v1.2
class: Workflow
$namespaces:
  cwltool: http://commonwl.org/cwltool#

requirements:
  MultipleInputFeatureRequirement: {}
  ScatterFeatureRequirement: {}
  SubworkflowFeatureRequirement: {}

inputs:
  python:
    type: string
    doc: The interpreter that has qtide; the same path has to work wherever a step runs.
  folder:
    type: string
    doc: The folder of the run; the step advance reads the program there and notes its progress.
  journal:
    type: File
    doc: The finished phases, which are not repeated.

outputs:
  result:
    type: File
    outputSource: conclude/result
  finished:
    type: File?
    doc: The journal at the end; a workflow that starts with it gives the result at once.
    outputSource: phases/grown

steps:
  phases:
    in:
      python: python
      folder: folder
      journal: journal
      answers: {default: []}
      going: {default: true}
    out: [grown, answered, unfinished, outcome]
    requirements:
      cwltool:Loop:
        loopWhen: $(inputs.going)
        loop:
          journal: grown
          answers: answered
          going: unfinished
        outputMethod: last
    run:
      class: Workflow
      inputs:
        python: string
        folder: string
        journal: File
        answers: File[]
        going: boolean
      outputs:
        grown: {type: File, outputSource: advance/grown}
        unfinished: {type: boolean, outputSource: advance/unfinished}
        outcome: {type: File, outputSource: advance/outcome}
        answered:
          type: File[]
          outputSource: [advance/kept, classical/answer, quantum/answers]
          linkMerge: merge_flattened
          pickValue: all_non_null
      steps:
        advance:
          in: {python: python, folder: folder, journal: journal, answers: answers}
          out: [grown, unfinished, outcome, kept, tasks, payloads, classical, quantum]
          run:
            class: CommandLineTool
            arguments: [$(inputs.python), -m, qtide.interfaces.export.step, advance]
            inputs:
              python: string
              folder: {type: string, inputBinding: {position: 1}}
              journal: {type: File, inputBinding: {position: 2}}
              answers: {type: 'File[]', inputBinding: {position: 3}}
            outputs:
              grown: File
              unfinished: boolean
              outcome: File
              kept: File[]
              tasks: File[]
              payloads: File[]
              classical: boolean
              quantum: boolean
        classical:
          in: {python: python, task: advance/tasks, wanted: advance/classical}
          when: $(inputs.wanted)
          scatter: task
          out: [answer]
          run:
            class: CommandLineTool
            arguments: [$(inputs.python), -m, qtide.interfaces.export.step, classical]
            inputs:
              python: string
              wanted: boolean
              task: {type: File, inputBinding: {position: 1}}
            outputs:
              answer: File
        quantum:
          in: {python: python, payloads: advance/payloads, wanted: advance/quantum}
          when: $(inputs.wanted)
          out: [answers]
          run:
            class: CommandLineTool
            arguments: [$(inputs.python), -m, qtide.interfaces.export.step, quantum]
            inputs:
              python: string
              wanted: boolean
              payloads: {type: 'File[]', inputBinding: {position: 1}}
            outputs:
              answers: File[]
  conclude:
    in: {python: python, outcome: phases/outcome}
    out: [result]
    run:
      class: CommandLineTool
      arguments: [$(inputs.python), -m, qtide.interfaces.export.step, conclude]
      inputs:
        python: string
        outcome: {type: File?, inputBinding: {position: 1}}
      outputs:
        result: File
