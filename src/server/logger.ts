/** Where the server says what happens to it. It is given one; by default nobody listens. */
export interface Logger {
  info(message: string, facts?: Facts): void
  error(message: string, facts?: Facts): void
}

export type Facts = Readonly<Record<string, string | number | boolean | null>>

export const silentLogger: Logger = { info: () => undefined, error: () => undefined }
