/** The options of Codex, which runs as `codex app-server`. */
import { Type, type Static } from '../../schema/typebox.ts'
import { EXACT, list, oneOf, optional } from '../../schema/contract.ts'
import { CHOICES, type Unstated } from '../agent-options.ts'
import { LONG_LIVED, PROGRAM, type Isolated } from '../program-options.ts'

/** How far Codex may go by itself, and when it asks. */
export const MODES = {
  'read-only': { approvalPolicy: 'on-request', sandbox: 'read-only' },
  'workspace-write': { approvalPolicy: 'on-request', sandbox: 'workspace-write' },
  untrusted: { approvalPolicy: 'untrusted', sandbox: 'workspace-write' },
  plan: { approvalPolicy: 'on-request', sandbox: 'read-only' },
  'danger-full-access': { approvalPolicy: 'never', sandbox: 'danger-full-access' },
} as const

export type Mode = keyof typeof MODES
export const MODE_NAMES = Object.keys(MODES) as Mode[]

export const CodexAgent = Type.Object(
  {
    ...PROGRAM,
    ...optional({
      ...LONG_LIVED,
      ...CHOICES,
      mode: oneOf(MODE_NAMES, {
        description:
          "the mode of sessions that name none: by default what Codex's own configuration says, " +
          'or `workspace-write`',
      }),
      modes: list({
        values: MODE_NAMES,
        description:
          'the modes that the settings of a session may name; by default all but ' +
          '`danger-full-access`',
      }),
    }),
  },
  EXACT,
)

export type CodexOptions = Readonly<Static<typeof CodexAgent>> & {
  /** The parent of the sessions' folders. */
  readonly folder?: string
}

export type CodexSettings = CodexOptions &
  Required<Omit<CodexOptions, Isolated | Unstated | 'cwd' | 'folder' | 'mode'>>
