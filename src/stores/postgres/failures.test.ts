import { expect, it } from 'vitest'
import { storeError } from './failures.ts'

it.each([
  ['connect ENOENT /var/run/postgresql/.s.PGSQL.5432', 'connect ENOENT …'],
  [
    'could not extend file "base/16384/2619": No space left',
    'could not extend file …: No space left',
  ],
  [
    'connection to server on socket "/tmp/.s.PGSQL.5432" failed',
    'connection to server on socket … failed',
  ],
  ['relation "sessions" does not exist', 'relation "sessions" does not exist'],
  ['connect ECONNREFUSED 127.0.0.1:5432', 'connect ECONNREFUSED 127.0.0.1:5432'],
])('tells of %j without a path', (message, told) => {
  const error = storeError(new Error(message))
  expect(error.message).toContain(told)
  expect(error.details).toEqual({ reason: told })
})
