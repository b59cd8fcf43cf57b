/** What the server tells only when it is asked, asked again and again while it can be seen. */
import { useEffect, useRef, useState } from 'preact/hooks'

export type Polled<Value> = {
  /** What was read last; null: nothing was. */
  readonly value: Value | null
  /** Why the last reading failed, in a sentence; null: it did not. */
  readonly problem: string | null
}

const NOTHING = { value: null, problem: null }

/**
 * `input` names what is read: another one begins anew. Null: nothing is. A page that is hidden or
 * offline does not ask, and asks at once when it can again.
 */
export function usePolled<Value>(
  read: (signal: AbortSignal) => Promise<Value>,
  everyMs: number,
  input: string | null = '',
): Polled<Value> {
  const [state, setState] = useState<Polled<Value> & { readonly input?: string | null }>(NOTHING)
  const latest = useRef(read)
  latest.current = read
  useEffect(() => {
    if (input === null) return
    const abort = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    let isReading = false
    const poll = async (): Promise<void> => {
      if (isReading || document.hidden || !navigator.onLine) return
      clearTimeout(timer)
      isReading = true
      try {
        const value = await latest.current(abort.signal)
        if (!abort.signal.aborted) setState({ value, problem: null, input })
      } catch (error) {
        const problem = (error as Error).message
        if (!abort.signal.aborted) setState(({ value }) => ({ value, problem, input }))
      }
      isReading = false
      if (!abort.signal.aborted) timer = setTimeout(wake, everyMs)
    }
    const wake = (): void => void poll()
    document.addEventListener('visibilitychange', wake)
    window.addEventListener('online', wake)
    wake()
    return () => {
      abort.abort()
      clearTimeout(timer)
      document.removeEventListener('visibilitychange', wake)
      window.removeEventListener('online', wake)
    }
  }, [input, everyMs])
  return state.input === input ? state : NOTHING
}
