/** Whether the store answers: for `/ready`, and to notice a store that has failed for good. */
import { HoldfastError, asHoldfastError } from '../core/index.ts'
import type { ServerContext } from '../doors/exchange.ts'
import { drainingError } from './forwarding/forwarder.ts'
import { SERVER_LIMITS } from './limits.ts'

/** Why no work can be taken, or null if it can. Costs one read at most. */
export async function unreadiness({
  holdfast,
  isDraining,
}: Pick<ServerContext, 'holdfast' | 'isDraining'>): Promise<HoldfastError | null> {
  if (isDraining()) return drainingError()
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    const error = new HoldfastError('store_unavailable', 'the store does not answer')
    timer = setTimeout(() => reject(error), SERVER_LIMITS.storeAnswerMs)
  })
  try {
    const { store } = holdfast.authority
    await Promise.race([store.ready?.() ?? store.read('', 0, 0), late])
    return null
  } catch (error) {
    return asHoldfastError(error)
  } finally {
    clearTimeout(timer)
  }
}

/** Nothing but a new start helps. */
export function isForGood({ code }: HoldfastError): boolean {
  return code === 'store_failed' || code === 'store_corrupt' || code === 'store_newer'
}
