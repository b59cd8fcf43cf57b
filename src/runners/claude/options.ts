/** The options of Claude Code as a long-lived agent. */
import { Type, type Static } from '../../schema/typebox.ts'
import { EXACT, list, optional } from '../../schema/contract.ts'
import { CHOICES, type Unstated } from '../agent-options.ts'
import { LONG_LIVED, PROGRAM, type Isolated } from '../program-options.ts'

export const MODE_NAMES = [
  ...['default', 'acceptEdits', 'plan', 'dontAsk', 'auto', 'bypassPermissions'],
]

export const ClaudeAgent = Type.Object(
  {
    ...PROGRAM,
    ...optional({
      ...LONG_LIVED,
      ...CHOICES,
      modes: list({
        values: MODE_NAMES,
        default: ['default', 'acceptEdits', 'plan', 'dontAsk'],
        description: 'the permission modes that the settings of a session may name',
      }),
      models: list({
        description: 'the models that the settings of a session may name; by default any',
      }),
      allow: list({
        default: [],
        description: 'tools that it may use without asking, like `Bash(git status:*)`',
      }),
      deny: list({
        default: [],
        description: 'tools that it may never use, whatever a client allows, like `Bash(rm:*)`',
      }),
    }),
  },
  EXACT,
)

export type ClaudeOptions = Readonly<Static<typeof ClaudeAgent>> & {
  /** Where the sessions' folders are. */
  readonly folder: string
}

export type ClaudeSettings = ClaudeOptions &
  Required<Omit<ClaudeOptions, Isolated | Exclude<Unstated, 'modes'> | 'cwd' | 'models'>>
