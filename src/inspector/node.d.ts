/** The one function of Node that types of `wire` reach: the page has no types of Node. */
declare module 'node:module' {
  export function createRequire(url: string): (name: string) => unknown
}
