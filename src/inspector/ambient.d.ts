/** The one function of Node that types of `wire` reach: the page has no types of Node. */
declare module 'node:module' {
  export function createRequire(url: string): (name: string) => unknown
}

/** Style sheets that are imported are put into one file by the build. */
declare module '*.css'
