/** The tokens of a server, and what keeps their principals apart. */
import { unisolatedAgents, type Config } from '../config/index.ts'
import type { Diagnose, DiagnosticListener } from '../core/index.ts'
import { openJwtTokens, openTokenFile, type JwtTokens, type TokenFile } from '../server/index.ts'
import type { PrepareSettings } from './reload.ts'
import { Separation } from './separation.ts'
import type { ServeValues } from './serve-flags.ts'
import { storePaths } from './stores.ts'

type TokenSettings = {
  readonly values: ServeValues
  readonly log: { readonly onDiagnostic: DiagnosticListener; readonly diagnose: Diagnose }
}

export type OpenedTokens = {
  readonly tokens: JwtTokens | undefined
  readonly warnings: Separation['warnings']
  readonly readAgain: () => Promise<void>
  readonly prepare: PrepareSettings
}

/** The tokens, and what keeps their principals apart; throws where nothing does. */
export async function openTokens(
  { log, values }: TokenSettings,
  config: Config,
): Promise<OpenedTokens> {
  const { onDiagnostic } = log
  let { jwt } = config
  let file: TokenFile | undefined
  const isSeveral = (issuers: Config['jwt']): boolean =>
    issuers.length > 0 || file?.hasSeveralPrincipals() === true
  const unisolatedIn = (one: Config) => unisolatedAgents(one, values.agent)
  const separation = new Separation({
    severalPrincipals: () => isSeveral(jwt),
    unisolated: unisolatedIn(config),
    isUnisolatedAllowed: values['allow-unisolated-agents'],
    files: [...storePaths(values), ...(values.tokens === null ? [] : [values.tokens])],
    diagnose: log.diagnose,
  })
  if (values.tokens !== null) {
    file = await openTokenFile(values.tokens, (diagnostic) => {
      onDiagnostic(diagnostic)
      if (diagnostic.code === 'tokens_read') separation.report()
    })
  }
  try {
    separation.check()
    const isOpen = file === undefined && jwt.length === 0
    const tokens = isOpen ? undefined : openJwtTokens(jwt, { tokens: file, onDiagnostic })
    const prepare: PrepareSettings = (next) => {
      const unisolated = unisolatedIn(next)
      separation.assertApart(unisolated, isSeveral(next.jwt))
      const apply = (): void => {
        jwt = next.jwt
        tokens?.replaceIssuers(jwt)
        separation.replace(unisolated)
      }
      return { apply }
    }
    const readAgain = async (): Promise<void> => file?.readAgain()
    return { tokens, warnings: separation.warnings, readAgain, prepare }
  } catch (error) {
    file?.close()
    throw error
  }
}
