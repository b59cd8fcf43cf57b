/** The plan of Claude Code: its list of to-dos, or of tasks in newer versions. */
import { asList, asObject, asText, type JsonObject } from '../json.ts'

type PlanEntry = { readonly content: string; readonly status: string }
type Plan = { readonly entries: readonly PlanEntry[] }

const STATES: readonly unknown[] = ['pending', 'in_progress', 'completed']
/** How many tasks of a session are followed. */
const TASKS_MAX = 256

export class TaskList {
  readonly #tasks = new Map<string, PlanEntry>()
  /** The calls that may change it, until their results. */
  readonly #calls = new Map<string, { readonly name: string; readonly input: JsonObject }>()

  /** The plan that a call makes at once. */
  called(id: string, name: string, input: JsonObject): Plan | null {
    if (/^Task(Create|Update|List)$/.test(name)) this.#calls.set(id, { name, input })
    if (name !== 'TodoWrite') return null
    return { entries: asList(input['todos']).map((todo) => entryOf(asObject(todo))) }
  }

  /** The plan after the result of a call; null if it has not changed. */
  answered(id: string, details: JsonObject): Plan | null {
    const call = this.#calls.get(id)
    if (call === undefined) return null
    this.#calls.delete(id)
    const before = JSON.stringify(this.#plan())
    const { name, input } = call
    if (name === 'TaskList') this.#replace(asList(details['tasks']).map(asObject))
    else if (name === 'TaskCreate') this.#set(asObject(details['task']))
    else this.#update(asText(input['taskId']), input)
    const plan = this.#plan()
    return JSON.stringify(plan) === before ? null : plan
  }

  #replace(tasks: readonly JsonObject[]): void {
    this.#tasks.clear()
    for (const task of tasks) this.#set(task)
  }

  #set(task: JsonObject): void {
    const id = asText(task['id'])
    if (id !== '' && this.#tasks.size < TASKS_MAX) this.#tasks.set(id, entryOf(task))
  }

  #update(id: string, { status, subject }: JsonObject): void {
    const before = this.#tasks.get(id)
    if (before === undefined) return
    if (status === 'deleted') return void this.#tasks.delete(id)
    this.#tasks.set(
      id,
      entryOf({ ...before, ...(status === undefined ? {} : { status }), subject }),
    )
  }

  #plan(): Plan {
    return { entries: [...this.#tasks.values()] }
  }
}

function entryOf({ content, subject, status }: JsonObject): PlanEntry {
  return {
    content: asText(subject) || asText(content),
    status: STATES.includes(status) ? asText(status) : 'pending',
  }
}
