/** The address of the page for a link to an ask: its token is in the fragment, never sent. */
export function askLinkUrl(server: string, token: string): string {
  return `${server.replace(/\/+$/, '')}/#/ask/${token}`
}
