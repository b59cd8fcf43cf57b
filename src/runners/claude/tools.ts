/** The tools of Claude Code: what each does, and what a person needs to see of a call. */
import { resolve } from 'node:path'
import type { AskDetail, FileDiff, ToolCall, ToolKind } from '../../core/index.ts'
import { openWithin } from '../../platform/agent-files.ts'
import type { Places } from '../agent-settings.ts'
import { asList, asObject, asText, type JsonObject } from '../json.ts'

const KINDS: Readonly<Record<ToolKind, readonly string[]>> = {
  read: ['Read', 'Glob', 'Grep', 'LS', 'NotebookRead'],
  edit: ['Edit', 'Write', 'MultiEdit', 'NotebookEdit'],
  execute: ['Bash', 'BashOutput', 'KillShell', 'KillBash'],
  fetch: ['WebFetch', 'WebSearch'],
  think: ['Task', 'Agent', 'TodoWrite', 'EnterPlanMode', 'ExitPlanMode'],
  other: [],
}
const KIND_OF = new Map(
  Object.entries(KINDS).flatMap(([kind, names]) => names.map((name) => [name, kind as ToolKind])),
)

/** The largest file whose present text is shown with an ask, in bytes. */
const FILE_BYTES_MAX = 262_144
const TITLE_CHARS_MAX = 200

export function toolKind(name: string): ToolKind {
  return KIND_OF.get(name) ?? 'other'
}

/** A call as it is recorded when it starts. */
export function startedCall(id: string, name: string, input: JsonObject): ToolCall {
  const paths = pathsOf(input)
  const diff = editedTexts(input)
  return {
    id,
    name,
    kind: toolKind(name),
    status: 'running',
    title: titleOf(name, input),
    input,
    ...(diff.length === 0 ? {} : { diff }),
    ...(paths.length === 0 ? {} : { locations: paths.map((path) => ({ path })) }),
  }
}

/** `Bash: npm test`, `Edit: /src/a.ts`. */
export function titleOf(name: string, input: JsonObject): string {
  const { command, url, query, pattern, description } = input
  const [subject = ''] = [command, url, ...pathsOf(input), query, pattern, description]
    .map(asText)
    .filter((text) => text !== '')
  const title = subject === '' ? name : `${name}: ${subject}`
  return title.length > TITLE_CHARS_MAX
    ? `${title.slice(0, TITLE_CHARS_MAX).toWellFormed()}…`
    : title
}

function pathsOf({ file_path, notebook_path, path }: JsonObject): readonly string[] {
  return [file_path, notebook_path, path].map(asText).filter((one) => one !== '')
}

/** The changes of `Edit` and `MultiEdit`: the texts that are replaced. */
function editedTexts(input: JsonObject): readonly FileDiff[] {
  const path = asText(input['file_path'])
  const edits = Array.isArray(input['edits']) ? asList(input['edits']).map(asObject) : [input]
  return edits
    .filter((edit) => typeof edit['new_string'] === 'string')
    .map((edit) => ({
      path,
      before: asText(edit['old_string']),
      after: asText(edit['new_string']),
    }))
}

/** What a person needs to know about a call to allow it. Files elsewhere are not read for it. */
export async function detailOf(request: JsonObject, places: Places): Promise<AskDetail> {
  const { cwd } = places
  const tool = asText(request['tool_name'])
  const input = asObject(request['input'])
  const { command, url, plan } = input
  const paths = [...new Set([...pathsOf(input), asText(request['blocked_path'])])].filter(Boolean)
  const reason = asText(request['decision_reason']) || asText(request['description'])
  const diff = await diffOf(tool, input, places)
  return {
    tool,
    kind: toolKind(tool),
    cwd,
    ...(typeof command === 'string' ? { command } : {}),
    ...(typeof url === 'string' ? { url } : {}),
    ...(paths.length === 0 ? {} : { paths }),
    ...(diff.length === 0 ? {} : { diff }),
    ...(tool === 'ExitPlanMode' && typeof plan === 'string' ? { plan } : {}),
    ...(reason === '' ? {} : { reason }),
    ...(input['dangerouslyDisableSandbox'] === true ? { unsandboxed: true } : {}),
    input,
  }
}

async function diffOf(
  tool: string,
  input: JsonObject,
  places: Places,
): Promise<readonly FileDiff[]> {
  const [path] = pathsOf(input)
  if (path === undefined) return []
  const { content, new_source: source } = input
  if (tool === 'Write' && typeof content === 'string') {
    return [fileDiff(path, await presentText(path, places), content)]
  }
  if (tool === 'NotebookEdit' && typeof source === 'string') {
    const before = cellText(await presentText(path, places), asText(input['cell_id']))
    return [{ path, before, after: source }]
  }
  return editedTexts(input)
}

/** Undefined: the present text is not known, so all is shown as added. */
function fileDiff(path: string, before: string | null | undefined, after: string): FileDiff {
  if (before !== undefined) return { path, before, after }
  const added = after.split('\n').map((line) => `+${line}`)
  return { path, unified: ['@@ the present text of the file is not known @@', ...added].join('\n') }
}

/** The source of a notebook's cell; empty for a new one. */
function cellText(notebook: string | null | undefined, id: string): string {
  try {
    const cells = asList(asObject(JSON.parse(notebook ?? '{}'))['cells']).map(asObject)
    const source = cells.find((cell) => cell['id'] === id)?.['source']
    return Array.isArray(source) ? source.join('') : asText(source)
  } catch {
    // It is no notebook; the agent will be told so.
    return ''
  }
}

/**
 * The text of a file that the agent is about to replace; null: there is none; undefined: it is not
 * shown. This process may be allowed to read more than the agent, which chooses the path: the file
 * must lie in the agent's own folders.
 */
async function presentText(
  path: string,
  { cwd, directories }: Places,
): Promise<string | null | undefined> {
  try {
    const file = await openWithin(resolve(cwd, path), [cwd, ...directories])
    if (file === null) return undefined
    try {
      const { size } = await file.stat()
      return size > FILE_BYTES_MAX ? undefined : await file.readFile('utf8')
    } finally {
      await file.close()
    }
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT' ? null : undefined
  }
}
