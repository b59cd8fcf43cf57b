/** How the session's agent is to work: shown, and changed where the agent takes it. */
import { useEffect, useState } from 'preact/hooks'
import type { SessionView } from '../../wire/views.ts'
import { Dialog } from '../shared/dialog.tsx'
import { Button, Empty, Field, Problem, Select, Tag } from '../shared/parts.tsx'
import { api, type AgentRow } from '../shared/server.ts'
import { shownName } from '../shared/shown-text.ts'
import type { SessionModel } from './session-model.ts'

const NAMES = {
  mode: ['Mode', 'text'],
  model: ['Model', 'text'],
  instructions: ['Instructions', 'long'],
  cwd: ['Working folder', 'text'],
  directories: ['Further folders, one on a line', 'lines'],
  mcpServers: ['MCP servers, one on a line', 'lines'],
} as const

type Name = keyof typeof NAMES
type Settings = SessionView['settings']

const isName = (name: unknown): name is Name => typeof name === 'string' && name in NAMES

/** Mode and model, which a reader wants to see at once. */
export function SettingTags({ settings }: { readonly settings: Settings }) {
  const { mode, model } = settings ?? {}
  return (
    <>
      {mode === undefined ? null : <Tag title="Mode">mode {shownName(mode)}</Tag>}
      {model === undefined ? null : <Tag title="Model">{shownName(model)}</Tag>}
    </>
  )
}

type SettingsDialogProps = { readonly model: SessionModel; readonly onClose: () => void }

export function SettingsDialog({ model, onClose }: SettingsDialogProps) {
  const info = model.info.value
  const [agent, setAgent] = useState<AgentRow | null | undefined>(undefined)
  const [problem, setProblem] = useState('')
  useEffect(() => {
    api.agents().then(
      (agents) => setAgent(agents.find(({ name }) => name === info?.agent) ?? null),
      (error: Error) => setProblem(error.message),
    )
  }, [info?.agent])
  const names = agent === null || agent === undefined ? [] : listOf(agent, 'settings')
  return (
    <Dialog title="Settings" onClose={onClose}>
      {problem === '' ? null : <Problem>{problem}</Problem>}
      {agent === undefined && problem === '' ? <Empty>Loading…</Empty> : null}
      {agent === null ? <Empty>This agent is not there any more.</Empty> : null}
      {agent === null || agent === undefined ? null : (
        <SettingsForm {...{ model, agent, onClose }} names={names.filter(isName)} />
      )}
    </Dialog>
  )
}

type SettingsFormProps = SettingsDialogProps & {
  readonly agent: AgentRow
  readonly names: readonly Name[]
}

function SettingsForm({ model, agent, names, onClose }: SettingsFormProps) {
  const settings = model.info.value?.settings ?? {}
  const [typed, setTyped] = useState<Partial<Record<Name | 'onNobody', string>>>({})
  const [problem, setProblem] = useState('')
  const [isSaving, setSaving] = useState(false)
  const set = (name: Name | 'onNobody') => (value: string) => setTyped({ ...typed, [name]: value })
  const save = async (): Promise<void> => {
    setSaving(true)
    try {
      const changes = Object.entries(typed).map(([name, text]) => [name, valueOf(name, text)])
      if (changes.length > 0) await api.configure(model.id, Object.fromEntries(changes))
      await model.refresh()
      onClose()
    } catch (error) {
      setProblem((error as Error).message)
      setSaving(false)
    }
  }
  return (
    <form
      class="form"
      onSubmit={(event) => {
        event.preventDefault()
        void save()
      }}
    >
      <p class="muted">They apply to the next turn, or at once if the agent can.</p>
      {names.map((name) => (
        <Setting
          key={name}
          name={name}
          value={typed[name] ?? textOf(settings[name])}
          choices={name === 'mode' || name === 'model' ? listOf(agent, `${name}s`) : []}
          onChange={set(name)}
        />
      ))}
      <Field name="If no client can answer an ask">
        <Select
          options={ON_NOBODY}
          value={typed.onNobody ?? textOf(settings.onNobody)}
          onChange={set('onNobody')}
        />
      </Field>
      {problem === '' ? null : <Problem>{problem}</Problem>}
      <div class="buttons">
        <Button kind="primary" type="submit" disabled={isSaving}>
          Save
        </Button>
        <Button onClick={onClose}>Cancel</Button>
      </div>
    </form>
  )
}

const ON_NOBODY = [
  ['', 'as the ask says'],
  ['wait', 'it waits'],
  ['deny', 'it is denied at once'],
] as const

type SettingProps = {
  readonly name: Name
  readonly value: string
  readonly choices: readonly string[]
  readonly onChange: (value: string) => void
}

function Setting({ name, value, choices, onChange }: SettingProps) {
  const [label, kind] = NAMES[name]
  const known = choices.includes(value) || value === '' ? choices : [...choices, value]
  return (
    <Field name={label}>
      {choices.length > 0 ? (
        <Select
          options={[['', 'the agent’s own'], ...known.map((id) => [id, shownName(id)] as const)]}
          value={value}
          onChange={onChange}
        />
      ) : kind === 'text' ? (
        <input value={value} onInput={(event) => onChange(event.currentTarget.value)} />
      ) : (
        <textarea rows={3} value={value} onInput={(event) => onChange(event.currentTarget.value)} />
      )}
    </Field>
  )
}

const textOf = (value: string | readonly string[] | undefined): string =>
  typeof value === 'string' ? value : (value ?? []).join('\n')

/** Null takes the setting back. */
function valueOf(name: string, text: string): unknown {
  if (text.trim() === '') return null
  const isList = isName(name) && NAMES[name][1] === 'lines'
  return isList ? text.split('\n').filter((line) => line.trim() !== '') : text
}

function listOf({ capabilities }: AgentRow, name: string): readonly string[] {
  const list = capabilities[name]
  return Array.isArray(list) ? (list as readonly string[]) : []
}
