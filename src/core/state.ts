/**
 * The state of a session, as data. `evolve` folds it from the log; snapshots are JSON of it, so a
 * field that is added here needs a new snapshot format (`snapshots.ts`).
 */

export const RECONNECT_POLICIES = ['none', 'early', 'resume', 'reopen'] as const
/** What a lost connection means to its attachment. */
export type ReconnectPolicy = (typeof RECONNECT_POLICIES)[number]

export type Session = {
  readonly id: string
  /** Whom it belongs to: the id of a principal or a group (`access.ts`). */
  readonly principal: string
  readonly key: string | null
  readonly agent: string
  readonly internal: boolean
  readonly reconnect: ReconnectPolicy
  /** At most one driver at a time. */
  readonly exclusive: boolean
  readonly graceMs: number
  /** How long it may be idle; null: no limit. */
  readonly ttlMs: number | null
  readonly labels: Readonly<Record<string, string>>
  readonly createdAt: number
  readonly updatedAt: number
  /** When it was last used, if only watchers have come since: they do not keep it open. */
  readonly usedAt?: number
  /** The position of the last event in the log. */
  readonly seq: number
  readonly closed: { readonly at: number; readonly reason: string } | null
  /** The backend's own session id; written once. */
  readonly backend: string | null
  readonly running: Turn | null
  /** Turns of the log that wait, oldest first. */
  readonly queued: readonly Turn[]
  /** How many turns have started. */
  readonly turns: number
  readonly asks: readonly Ask[]
  /** In the order in which they were opened. */
  readonly attachments: readonly Attachment[]
  /** The attachments that ended last. */
  readonly ended: readonly EndedAttachment[]
  readonly links: readonly Link[]
  /** In the order in which they were made; one for each principal or group. */
  readonly shares: readonly Share[]
  readonly settings: Settings
  /** What people have allowed its agent until it is closed, in the order of their answers. */
  readonly grants: readonly Grant[]
  /** The agent's plan and its slash commands, as it told them last; null: it told none. */
  readonly plan: readonly unknown[] | null
  readonly commands: readonly unknown[] | null
  /** What all its turns have used together. */
  readonly usage: Usage
  /** Where its conversation began, if not here. */
  readonly origin: Origin | null
}

/** Where a conversation began before the session that continues it (`origins.ts`). */
export type Origin = {
  /** The session and the turn that it was forked from; absent: it was the agent's own. */
  readonly session?: string
  readonly turn?: string
  /** The agent's id of that conversation; null: the agent had none. */
  readonly backend: string | null
  /** What the runner had kept about the end of that turn. */
  readonly position?: unknown
}

/** A message from before the session. */
export type EarlierMessage = {
  readonly role: 'user' | 'assistant'
  readonly text: string
  /** What came with the text of a user's message; its bytes are in this session too. */
  readonly parts?: readonly Part[]
  readonly at: number
}

/** How an agent is to work: of a session, and of a single turn on top of that. */
export type Settings = {
  /** A mode of the agent, as `plan` of Claude Code. */
  readonly mode?: string
  readonly model?: string
  /** Added to the agent's system prompt. */
  readonly instructions?: string
  /** The working folder, of those that the operator allows. */
  readonly cwd?: string
  /** Further folders, of those that the operator allows. */
  readonly directories?: readonly string[]
  /** Names of MCP servers that the operator configured. */
  readonly mcpServers?: readonly string[]
  /** What becomes of an ask that no client can answer; the ask itself may say otherwise. */
  readonly onNobody?: 'wait' | 'deny'
}

/** Those that an agent has to honour. `onNobody` is the core's own. */
export const SETTING_NAMES = [
  'mode',
  'model',
  'instructions',
  'cwd',
  'directories',
  'mcpServers',
] as const satisfies readonly (keyof Settings)[]
export type SettingName = (typeof SETTING_NAMES)[number]

/** What turns have used, as agents report it. */
export type Usage = {
  readonly inputTokens: number
  readonly outputTokens: number
  /** Of the input tokens, those that the model's provider had cached. */
  readonly cachedTokens: number
  readonly costUsd: number
}

/** What a session is created with. */
export type SessionOptions = Pick<
  Session,
  'id' | 'key' | 'agent' | 'internal' | 'reconnect' | 'exclusive' | 'graceMs' | 'ttlMs' | 'labels'
> & {
  readonly settings?: Settings
  /** The backend's own session id, if the session continues one. */
  readonly backend?: string | null
  /** `omitted`: how many older messages were left out. */
  readonly origin?: Origin & {
    readonly messages: readonly EarlierMessage[]
    readonly omitted?: number
  }
}

/** A fresh copy of a session while an event is folded into it. */
export type Folding = { -readonly [Field in keyof Session]: Session[Field] }

/** What a turn is given: a text, or an object with a text and more that its agent understands. */
export type Input =
  | string
  | {
      readonly text: string
      /** The text and what comes with it, in order; the text is that of its texts. */
      readonly parts?: readonly Part[]
      readonly [field: string]: unknown
    }

export type TextPart = { readonly type: 'text'; readonly text: string }

/** An image or a file. The store keeps its bytes with the session, by their digest. */
export type BlobPart = {
  readonly type: 'image' | 'file'
  /** Of every file. */
  readonly name?: string
  readonly mediaType: string
  readonly bytes: number
  /** `sha256:` and 64 hexadecimal digits. */
  readonly digest: string
}

/** A part of an input, as the log has it. */
export type Part = TextPart | BlobPart

/** An idempotency key and a digest of the body: the same key with another body is refused. */
export type RequestKey = { readonly key: string; readonly digest: string }

/** A turn that waits or runs. Its id is `t` and the seq of the event that admitted it. */
export type Turn = {
  readonly id: string
  readonly input: Input
  readonly keys: readonly RequestKey[]
  /** Later requests may join it while it waits. */
  readonly collect: boolean
  /** When it stops waiting, or null. */
  readonly expiresAt: number | null
  /** Null in logs of 0.1.0, which did not record it. */
  readonly by: Principal | null
  /** When it began to wait; null if it did not have to. */
  readonly queuedAt: number | null
  /** Of this turn, on top of the session's. */
  readonly settings?: Settings
}

export type TurnState =
  | 'queued'
  | 'running'
  | 'done'
  | 'failed'
  | 'cancelled'
  | 'interrupted'
  | 'expired'

export type TurnError = { readonly code: string; readonly message: string }

/** An assistant's message: its text, and data that the runner keeps with it. */
export type Reply = { readonly text: string; readonly data?: unknown }

/** `kind` says what `data` is: `tool` (a `ToolCall`), `plan`, `usage`, `diagnosis`, … */
export type Activity = { readonly kind: string; readonly data: unknown }

/** What a tool does, in the same words for all agents. */
export const TOOL_KINDS = ['read', 'edit', 'execute', 'fetch', 'think', 'other'] as const
export type ToolKind = (typeof TOOL_KINDS)[number]

/** A change of a file: its text before (null: a new file) and after, or a unified diff. */
export type FileDiff =
  | { readonly path: string; readonly before: string | null; readonly after: string }
  | { readonly path: string; readonly unified: string }

/** A tool call of an agent. Later activities of the same id have the fields that changed. */
export type ToolCall = {
  readonly id: string
  readonly name?: string
  readonly kind?: ToolKind
  readonly status?: 'pending' | 'running' | 'done' | 'failed'
  readonly title?: string
  readonly input?: unknown
  readonly output?: unknown
  readonly diff?: readonly FileDiff[]
  readonly locations?: readonly { readonly path: string; readonly line?: number }[]
  /** The tool call of which this one is a part. */
  readonly parent?: string
}

/** What a door records outside of a turn; `kind` begins with the name of the door. */
export type Note = { readonly kind: string; readonly data: unknown }

export type AskOption = {
  readonly id: string
  readonly label: string
  /**
   * What it means for the request and nothing more; without it, an option of the id `allow` or
   * `deny` means that.
   */
  readonly means?: 'allow' | 'deny'
  /** What is allowed from then on, in this session, if this is chosen. */
  readonly grants?: readonly Grant[]
}

/** Something that a person has allowed an agent for the rest of a session. */
export type Grant = {
  /** For people: `Bash(npm test:*)`. */
  readonly label: string
  /** For the runner. */
  readonly data: unknown
}

/** An ask that waits. Its id is `a` and the seq of the event that opened it. */
export type Ask = {
  readonly id: string
  readonly turn: string
  readonly kind: string
  readonly question: string
  readonly options: readonly AskOption[] | null
  readonly deadline: number
  readonly onNobody: 'wait' | 'deny'
  readonly data?: unknown
  readonly detail?: AskDetail
  readonly accepts?: readonly AnswerForm[]
  /** The operator's rule that wants people to be asked, by its name. */
  readonly rule?: string
  /** Whose answers are taken; without it, of all who may answer asks. */
  readonly answeredBy?: AnsweredBy
  /** So many different people have to allow it; without it, one. */
  readonly people?: number
  /** Those who have, where that is not enough yet. */
  readonly approvals?: readonly Approval[]
}

/**
 * A client that drives the session; its owner, or a member of the group that owns it; these and
 * whomever it is shared with for answering; all who may answer.
 */
export const ANSWERED_BY = ['driver', 'owner', 'group', 'any'] as const
export type AnsweredBy = (typeof ANSWERED_BY)[number]

export type Approval = { readonly by: Principal; readonly answer: unknown }

/** What rules have decided of an ask, and what did: it takes the place of a person's answer. */
export type Ruling = {
  readonly decision: 'allow' | 'deny'
  readonly message: string | null
} & ({ readonly rule: string } | { readonly grant: string })

/** What an ask is about, in one shape for all agents: what a person needs to decide. */
export type AskDetail = {
  /** The tool's name. */
  readonly tool?: string
  readonly kind?: ToolKind
  readonly command?: string
  readonly cwd?: string
  readonly url?: string
  readonly paths?: readonly string[]
  readonly diff?: readonly FileDiff[]
  /** A plan to be approved, as Markdown. */
  readonly plan?: string
  /** Why the agent asks, in its own words. */
  readonly reason?: string
  /** The tool's arguments. */
  readonly input?: unknown
  /** It would run outside of the sandbox that the agent has for its tools. */
  readonly unsandboxed?: true
  /** A part was left out, because it is too large. */
  readonly truncated?: true
}

/**
 * Answers besides the id of an option: `message`, words for the agent with the option
 * (`{option, message}`); `input`, edited arguments (`{option, input}`); `several`, a list of
 * options; `text`, an answer in one's own words (`{text}`).
 */
export const ANSWER_FORMS = ['message', 'input', 'several', 'text'] as const
export type AnswerForm = (typeof ANSWER_FORMS)[number]

export type AskOutcome =
  | {
      readonly outcome: 'answered'
      readonly answer: unknown
      /**
       * Whose answer it is; null: no person's, but what `rule` or `grant` decided. In logs of
       * 0.1.0: the attachment's id, or null.
       */
      readonly by: Principal | string | null
      /** The attachment that sent it, if any. */
      readonly attachment?: string
      /** The operator's rule that decided, by its name. */
      readonly rule?: string
      /** What a person had allowed for the session, by its label. */
      readonly grant?: string
    }
  | { readonly outcome: 'timed_out' }
  | { readonly outcome: 'nobody_to_ask' }
  /** `rule`: the operator's rule that denies it, of an ask without an option that does. */
  | { readonly outcome: 'withdrawn'; readonly rule?: string }

/**
 * A driver takes part; an exclusive session has at most one. A watcher only reads, and is not
 * recorded (`watchers.ts`): only logs that 0.1.0 began have attachments with that role.
 */
export const ROLES = ['driver', 'watcher'] as const
export type Role = (typeof ROLES)[number]

/** One client's place in a session. A detached one has lost its connection and may come back. */
export type Attachment = {
  readonly id: string
  readonly role: Role
  /** The kinds of ask it answers. */
  readonly answers: readonly string[]
  readonly state: 'live' | 'detached'
  /** When a detached one ends for good. */
  readonly graceUntil: number | null
  /** Until when a detached one still counts as a client that answers asks. */
  readonly answersUntil: number | null
  /** The number of its connection, from 1. */
  readonly epoch: number
  /** Digests of the valid resume tokens: the newest, and the one before it until confirmed. */
  readonly tokens: readonly string[]
  /** The digest that was valid last: a client that shows it has an old copy. */
  readonly retired: string | null
  /** The link that it came in by, if any: they end together. */
  readonly link?: string
  /** On whose behalf it was opened; not in logs of 0.1.0. */
  readonly by?: Principal
}

/** What is kept of an attachment that ended, so that its client may learn why. */
export type EndedAttachment = {
  readonly id: string
  readonly tokens: readonly string[]
  readonly reason: string
}

/** One connection of an attachment. */
export type Connected = { readonly attachment: string; readonly epoch: number }

/** What a link allows: to read, to take turns, to answer asks. */
export const LINK_SCOPES = ['watch', 'talk', 'answer'] as const
export type LinkScope = (typeof LINK_SCOPES)[number]

export type Link = {
  readonly id: string
  readonly digest: string
  readonly scopes: readonly LinkScope[]
  readonly expiresAt: number | null
  /** How many more attachments it may make; null: any number. */
  readonly uses: number | null
  /** The newest uses by watchers: each admits its watcher again, without another use. */
  readonly usedBy?: readonly string[]
}

/** What a principal or a group may do with the session of another. */
export type Share = { readonly with: string; readonly scopes: readonly LinkScope[] }

export const PRINCIPAL_KINDS = ['token', 'jwt', 'link', 'local'] as const

/**
 * The principal: on whose behalf something was done, as the log keeps it. It identifies a
 * caller and says nothing about it: `id` is opaque and stable, never a name, a group, an address or
 * a secret. What the system does itself (a timeout, a recovery) has no principal but a reason.
 */
export type Principal = {
  /** What it was recognised by. */
  readonly kind: (typeof PRINCIPAL_KINDS)[number]
  /** Which authority gave the id out; `holdfast` for tokens, links and local callers. */
  readonly issuer: string
  readonly id: string
}

export const ISSUER = 'holdfast'

/** Callers of the library, and of a server on loopback without tokens. */
export const LOCAL: Principal = { kind: 'local', issuer: ISSUER, id: 'default' }

/** The holder of a link. */
export function linkPrincipal(link: string): Principal {
  return { kind: 'link', issuer: ISSUER, id: link }
}

/** False if either is unknown. */
export function isSamePrincipal(one: Principal | null, other: Principal | null): boolean {
  if (one === null || other === null) return false
  return one.kind === other.kind && one.issuer === other.issuer && one.id === other.id
}

/** Those of each principal together, in their order. */
export function groupByPrincipal<Item extends { readonly by?: Principal }>(
  items: readonly Item[],
): readonly (readonly Item[])[] {
  const groups = new Map<string, Item[]>()
  for (const item of items) {
    const whose = JSON.stringify(item.by ?? null)
    const group = groups.get(whose)
    if (group === undefined) groups.set(whose, [item])
    else group.push(item)
  }
  return [...groups.values()]
}
