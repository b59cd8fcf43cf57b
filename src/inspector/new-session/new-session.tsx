/** The form for a new session. */
import { useEffect, useState } from 'preact/hooks'
import { useDraft } from '../shared/memory.ts'
import { Button, Field, Problem, Select } from '../shared/parts.tsx'
import { go, href, sessionHref } from '../shared/router.ts'
import { api, type NewSession as Options } from '../shared/server.ts'
import { shownName } from '../shared/shown-text.ts'

const POLICIES = [
  ['reopen', 'reopen: the session stays open until it is closed'],
  ['resume', 'resume: a page may come back, also during a turn'],
  ['early', 'early: a page may come back until the first turn starts'],
  ['none', 'none: a lost connection ends the session'],
] as const

export function NewSession() {
  const [key, agent, grace] = [useDraft('new:key'), useDraft('new:agent'), useDraft('new:grace')]
  const [reconnect, setReconnect] = useState<string>('reopen')
  const [isExclusive, setExclusive] = useState(false)
  const [problem, setProblem] = useState('')
  const agents = useAgents()
  const create = async (): Promise<void> => {
    setProblem('')
    const options: Options = {
      reconnect: reconnect as Options['reconnect'],
      exclusive: isExclusive,
      key: key.value || undefined,
      agent: agent.value || undefined,
      graceMs: grace.value === '' ? undefined : Math.round(Number(grace.value) * 1000),
    }
    // The session is new, or was found by its key.
    const { id } = await api.create(options)
    for (const text of [key, agent, grace]) text.value = ''
    go(sessionHref(id))
  }
  const input = (text: typeof key) => ({
    value: text.value,
    onInput: (event: { readonly currentTarget: HTMLInputElement }): void => {
      text.value = event.currentTarget.value
    },
  })
  return (
    <div class="page narrow">
      <h1>New session</h1>
      <form
        class="form card"
        onSubmit={(event) => {
          event.preventDefault()
          create().catch((error: Error) => setProblem(error.message))
        }}
      >
        <Field name="Key: your own name for it" hint="At most one open session has it.">
          <input name="key" autocomplete="off" placeholder="none" {...input(key)} />
        </Field>
        <Field name="Agent">
          <input
            name="agent"
            autocomplete="off"
            placeholder="the first"
            list="agents"
            {...input(agent)}
          />
        </Field>
        <Field name="When a connection is lost">
          <Select name="reconnect" options={POLICIES} value={reconnect} onChange={setReconnect} />
        </Field>
        <Field name="Seconds within which a lost page may come back">
          <input
            name="grace"
            type="number"
            min={0}
            step="any"
            placeholder="by policy"
            {...input(grace)}
          />
        </Field>
        <label class="check">
          <input
            type="checkbox"
            name="exclusive"
            checked={isExclusive}
            onChange={(event) => setExclusive(event.currentTarget.checked)}
          />
          <span>Exclusive: one client drives, the others watch</span>
        </label>
        {problem === '' ? null : <Problem>{problem}</Problem>}
        <div class="buttons">
          <Button kind="primary" type="submit">
            Create
          </Button>
          <a class="button plain" href={href(['sessions'])}>
            Cancel
          </a>
        </div>
        <datalist id="agents">
          {agents.map((name) => (
            <option key={name} value={name}>
              {shownName(name)}
            </option>
          ))}
        </datalist>
      </form>
    </div>
  )
}

function useAgents(): readonly string[] {
  const [agents, setAgents] = useState<readonly string[]>([])
  useEffect(() => {
    // Without the list a person types the name.
    api.agents().then(
      (all) => setAgents(all.map(({ name }) => name)),
      () => undefined,
    )
  }, [])
  return agents
}
