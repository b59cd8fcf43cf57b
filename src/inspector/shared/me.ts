/** What the caller may do: views leave out what it may not, instead of being refused. */
import { effect, signal } from '@preact/signals'
import { api } from './server.ts'

export type Me = {
  readonly principal: string
  readonly scopes: readonly string[]
  readonly version: string
}

/** Null: it is not known yet. */
export const me = signal<Me | null>(null)

/** Null: it is not known yet. */
export const may = (scope: string): boolean | null => me.value?.scopes.includes(scope) ?? null

/** Reads it now, and again with every other token; the returned function ends that. */
export function followMe(): () => void {
  return effect(() => {
    void api.token
    api.json<Me>('/v1/me').then(
      (read) => (me.value = read),
      // A token that may do nothing here, or no connection: nothing is known.
      (_error: unknown) => (me.value = null),
    )
  })
}
