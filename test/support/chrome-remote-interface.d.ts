/** As much of chrome-remote-interface as the tests use; the package has no types of its own. */
declare module 'chrome-remote-interface' {
  type Options = {
    readonly host?: string
    readonly port?: number
    readonly target?: unknown
    readonly alterPath?: (path: string) => string
  }
  type Target = { readonly id: string; readonly url: string; readonly webSocketDebuggerUrl: string }
  type Client = {
    send(method: string, params?: object, sessionId?: string): Promise<any>
    on(event: string, listener: (params: any, sessionId?: string) => void): void
    close(): Promise<void>
    readonly [domain: string]: any
  }
  const CDP: {
    (options?: Options): Promise<Client>
    List(options?: Options): Promise<Target[]>
    New(options?: Options & { readonly url?: string }): Promise<Target>
    Activate(options: Options & { readonly id: string }): Promise<void>
    Close(options: Options & { readonly id: string }): Promise<void>
    Version(options?: Options): Promise<Record<string, string>>
    Protocol(options?: Options): Promise<{ readonly domains: readonly { domain: string }[] }>
  }
  export default CDP
}
