/** What Codex is told with a thread and with each turn, from a session's settings. */
import type { Settings } from '../../core/index.ts'
import type { McpServerOptions } from '../agent-options.ts'
import type { Places } from '../agent-settings.ts'
import { asObject, asText, type JsonObject } from '../json.ts'
import { present } from '../tools.ts'
import { MODES, type Mode } from './options.ts'

/** Where a session works, and with which MCP servers. */
export type Workspace = Places & {
  readonly servers: readonly (readonly [string, McpServerOptions])[]
}

/** Codex's own configuration, and the mode that the operator chose instead. */
export type Defaults = JsonObject & { readonly mode?: Mode | undefined }

/** A thread that is open in a child. */
export type Thread = {
  readonly id: string
  /** The file that Codex keeps it in. */
  readonly path: string
  /** The model and the effort that it was opened with. */
  readonly model: string
  readonly effort: unknown
  /** Whether its last turn was in the plan mode, which Codex keeps. */
  isPlanning: boolean
}

/** The thread that a response is about. */
export function threadOf(response: JsonObject): Thread {
  const { thread, model, reasoningEffort, collaborationMode } = response
  return {
    id: asText(asObject(thread)['id']),
    path: asText(asObject(thread)['path']),
    model: asText(model),
    effort: reasoningEffort ?? null,
    isPlanning: asObject(collaborationMode)['mode'] === 'plan',
  }
}

/** Of a new, resumed or forked thread. */
export function threadParams({ cwd, servers }: Workspace, defaults: Defaults): object {
  const { approvalPolicy, sandbox } = policyOf({}, defaults)
  const named = servers.map(([name, server]) => [name, serverConfig(server)])
  const config = named.length === 0 ? {} : { mcp_servers: Object.fromEntries(named) as object }
  return { cwd, approvalPolicy, sandbox, config }
}

/**
 * Of one turn. Codex keeps what a turn was given for later ones, so each turn gets all of it, also
 * what is as in its configuration.
 */
export function turnParams(
  thread: Thread,
  given: {
    readonly settings: Settings
    readonly workspace: Workspace
    readonly defaults: Defaults
  },
): object {
  const { settings, workspace, defaults } = given
  const { approvalPolicy, sandbox } = policyOf(settings, defaults)
  const { model = thread.model, instructions } = settings
  return {
    threadId: thread.id,
    cwd: workspace.cwd,
    approvalPolicy,
    sandboxPolicy: sandboxPolicy(sandbox, workspace, defaults),
    model,
    ...collaboration(thread, (settings.mode ?? defaults.mode) === 'plan', model),
    ...(instructions === undefined
      ? {}
      : { additionalContext: { instructions: { value: instructions, kind: 'application' } } }),
  }
}

/** Enters or leaves the plan mode. Without need it is not named: it brings instructions with it. */
function collaboration(thread: Thread, isPlanning: boolean, model: string): object {
  if (!isPlanning && !thread.isPlanning) return {}
  thread.isPlanning = isPlanning
  const settings = { model, reasoning_effort: thread.effort, developer_instructions: null }
  return { collaborationMode: { mode: isPlanning ? 'plan' : 'default', settings } }
}

function policyOf({ mode }: Settings, { mode: chosen, ...config }: Defaults) {
  const known = mode ?? chosen
  if (known !== undefined) return MODES[known as Mode]
  const { approval_policy: approvalPolicy, sandbox_mode: sandbox } = config
  return {
    approvalPolicy: approvalPolicy ?? MODES['workspace-write'].approvalPolicy,
    sandbox: sandbox ?? MODES['workspace-write'].sandbox,
  }
}

function sandboxPolicy(sandbox: unknown, { directories }: Workspace, config: JsonObject): object {
  if (sandbox === 'danger-full-access') return { type: 'dangerFullAccess' }
  if (sandbox === 'read-only') return { type: 'readOnly', networkAccess: false }
  const given = asObject(config['sandbox_workspace_write'])
  const roots = (given['writable_roots'] ?? []) as readonly string[]
  return {
    type: 'workspaceWrite',
    writableRoots: [...roots, ...directories],
    networkAccess: given['network_access'] === true,
    excludeTmpdirEnvVar: given['exclude_tmpdir_env_var'] === true,
    excludeSlashTmp: given['exclude_slash_tmp'] === true,
  }
}

function serverConfig({ command, args, env, url, headers }: McpServerOptions): object {
  return present({ command, args, env, url, http_headers: headers })
}
