/** What the command line says: information on stdout, errors on stderr. Never a request's input. */
import type { Facts, Logger } from '../server/index.ts'

/** One line per message for people. */
export const textLogger: Logger = {
  info: (message, facts) => console.log(`holdfast: ${message}${written(facts)}`),
  error: (message, facts) => console.error(`holdfast: ${message}${written(facts)}`),
}

/** One JSON object per line for programs. */
export const jsonLogger: Logger = {
  info: (message, facts) => console.log(line('info', message, facts)),
  error: (message, facts) => console.error(line('error', message, facts)),
}

/** Errors only. */
export function quiet(logger: Logger): Logger {
  return { info: () => undefined, error: (message, facts) => logger.error(message, facts) }
}

function written(facts: Facts = {}): string {
  const pairs = Object.entries(facts).map(([name, value]) => `${name}: ${value}`)
  return pairs.length === 0 ? '' : ` (${pairs.join(', ')})`
}

function line(level: 'info' | 'error', message: string, facts: Facts = {}): string {
  return JSON.stringify({ time: new Date().toISOString(), level, message, ...facts })
}
