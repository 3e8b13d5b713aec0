server = Engine.Postgres.start!()
Engine.Postgres.sql!(server, Engine.Postgres.fixture())
Engine.Postgres.share(server)
ExUnit.after_suite(fn _result -> Engine.Postgres.stop(server) end)

ExUnit.start()
