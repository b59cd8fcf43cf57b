/** The slash commands of `holdfast chat`. Others are the agent's own. */
import type { SettingsChange } from '../wire/frames.ts'

/** What a command may do with the conversation. */
export type ChatControls = {
  readonly note: (words: string) => void
  readonly leave: () => void
  /** Cancels the running turn. */
  readonly cancel: () => void
  /** Shows what waits for an answer. */
  readonly asks: () => void
  readonly setting: (name: 'mode' | 'model') => string | null
  readonly configure: (change: SettingsChange) => void
}

type ChatCommand = {
  readonly usage: string
  readonly meaning: string
  /** Through pipes it does not wait for the end of the running turn. */
  readonly isUrgent?: boolean
  readonly run: (controls: ChatControls, rest: string) => void
}

const setting = (name: 'mode' | 'model'): ChatCommand => ({
  usage: `/${name} [${name.toUpperCase()}]`,
  meaning: `shows or changes the agent's ${name}; - takes it back`,
  run: ({ configure, setting: value, note }, rest) => {
    if (rest === '') note(`${name}: ${value(name) ?? "the agent's own"}`)
    else configure({ [name]: rest === '-' ? null : rest })
  },
})

export const CHAT_COMMANDS: ReadonlyMap<string, ChatCommand> = new Map<string, ChatCommand>([
  [
    'cancel',
    {
      usage: '/cancel',
      meaning: 'cancels the running turn',
      isUrgent: true,
      run: ({ cancel }) => cancel(),
    },
  ],
  ['mode', setting('mode')],
  ['model', setting('model')],
  [
    'asks',
    {
      usage: '/asks',
      meaning: 'shows again what waits for an answer',
      isUrgent: true,
      run: ({ asks }) => asks(),
    },
  ],
  [
    'help',
    {
      usage: '/help',
      meaning: 'lists these commands',
      run: ({ note }) => note(helpText()),
    },
  ],
  ['quit', { usage: '/quit', meaning: 'leaves; a turn continues', run: ({ leave }) => leave() }],
])

function helpText(): string {
  const lines = [...CHAT_COMMANDS.values()].map(
    ({ usage, meaning }) => `${usage.padEnd(16)} ${meaning}`,
  )
  return [...lines, '//…              sends a message that begins with /'].join('\n')
}

/** The command that a line begins with; null if it is none. */
export function commandOf(line: string): { readonly name: string; readonly rest: string } | null {
  const [, name, rest = ''] = /^\/([a-z][\w:-]*)(?:\s+(.*))?$/i.exec(line.trim()) ?? []
  return name === undefined ? null : { name, rest: rest.trim() }
}
